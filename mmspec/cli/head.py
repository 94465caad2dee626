"""`mmspec head`: the life of an EAGLE-3 head."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from mmspec.cli import head_capture, head_eval, head_train
from mmspec.cli.options import Json
from mmspec.cli.terminal import engine_terminal, one_line_errors
from mmspec.defaults import engine_defaults
from mmspec.models import resolve_model

app = typer.Typer(
    help="EAGLE-3 heads: the drafters that read the target's hidden states.", no_args_is_help=True
)
# Longer commands have a module each: app.command("train")(head_train.command)

_Head = Annotated[Path, typer.Argument(metavar="HEAD", help="Folder of a head, in any format.")]
_Out = Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write.")]
_Target = Annotated[
    str | None, typer.Option("--target", help="Its target: pocket, a checkpoint folder, or a hub name.")
]
_Dtype = Annotated[
    Literal["float32", "bfloat16", "float16"] | None,
    typer.Option("--dtype", help="Of the weights that are written.", show_default="as they are"),
]
_Force = Annotated[bool, typer.Option("--force", help="Replace the head that is in OUT.")]
_Verbose = Annotated[bool, typer.Option("--verbose", help="Show what the libraries log.")]


@app.command()
def check(
    head: _Head,
    target: Annotated[str, typer.Argument(help="pocket, a checkpoint folder, or a hub name.")],
    draft_tensor_parallel_size: Annotated[
        int, typer.Option(min=1, help="Of the engine's speculative_config: 1, or the target's size.")
    ] = 1,
    tensor_parallel_size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Parts that the target is cut into, and the head with it.", show_default="any"
        ),
    ] = None,
    dtype: Annotated[
        Literal["auto", "float32", "float", "bfloat16", "float16", "half"] | None,
        typer.Option(help="What the engine will run in.", show_default="as mmspec serve does"),
    ] = None,
    json: Json = False,
    verbose: _Verbose = False,
) -> None:
    """Say whether HEAD fits TARGET before any engine starts: a line for each mismatch, with its mend."""
    from mmspec.heads.check import check_head

    with (
        engine_terminal(json_only=json, verbose=verbose) as terminal,
        one_line_errors(f"head {head}", verbose),
    ):
        found = check_head(
            head,
            resolve_model(target, terminal.remarks.print),
            draft_tensor_parallel_size=draft_tensor_parallel_size,
            tensor_parallel_size=tensor_parallel_size,
            dtype=dtype or engine_defaults(target, ()).get("dtype"),
        )
        unread = any(mismatch.aspect == "target" for mismatch in found)
        fits = not unread and not any(mismatch.fatal for mismatch in found)
        for mismatch in found:
            terminal.answer.print(f"{'' if mismatch.fatal else 'note: '}{mismatch}", soft_wrap=True)
        verdict = "fits" if fits else "was not checked against" if unread else "does not fit"
        terminal.answer.print(f"head {head} {verdict} {target}", soft_wrap=True)
        if json:
            mismatches = [mismatch.to_dict() for mismatch in found]
            terminal.print_json({"head": str(head), "target": target, "fits": fits, "mismatches": mismatches})
    raise typer.Exit(0 if fits else 1)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Folder of a head, in any format.")],
    out: _Out,
    target: _Target = None,
    dtype: _Dtype = None,
    force: _Force = False,
    json: Json = False,
    verbose: _Verbose = False,
) -> None:
    """Write SOURCE in speculators' format, which mmspec trains, serves and exports."""
    _write("convert_head", source, out, target, dtype, force, json=json, verbose=verbose)


@app.command()
def export(
    head: _Head,
    out: _Out,
    target: _Target = None,
    dtype: _Dtype = None,
    force: _Force = False,
    json: Json = False,
    verbose: _Verbose = False,
) -> None:
    """Write a text HEAD so that stock vLLM loads it, without mmspec."""
    _write("export_head", head, out, target, dtype, force, json=json, verbose=verbose)


def _write(
    how: str,
    source: Path,
    out: Path,
    target: str | None,
    dtype: str | None,
    force: bool,
    *,
    json: bool,
    verbose: bool,
) -> None:
    with (
        engine_terminal(json_only=json, verbose=verbose) as terminal,
        one_line_errors(f"head {source}", verbose),
    ):
        from mmspec.heads import formats

        name = None if target is None else resolve_model(target, terminal.remarks.print)
        written = getattr(formats, how)(source, out, target=name, force=force, dtype=dtype)
        terminal.answer.print(f"wrote {out}", soft_wrap=True)
        if json:
            sizes = {
                name: written.config[name]
                for name in ("draft_vocab_size", "eagle_aux_hidden_state_layer_ids")
            }
            terminal.print_json(
                {"source": str(source), "out": str(out), **sizes, "tensors": len(written.tensors)}
            )


app.command()(head_capture.capture)
app.command()(head_train.train)
app.command("eval")(head_eval.evaluate)
