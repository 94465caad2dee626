"""`mmspec bench`: measurements."""

from pathlib import Path
from typing import Annotated

import typer

from mmspec.cli.bench_cache import encoder_cache
from mmspec.cli.bench_fastv import fastv
from mmspec.cli.bench_heads import positions, speed
from mmspec.cli.options import Head, Json, MaxModelLen, Model, Out, Tokens, Verbose, room
from mmspec.cli.results import measuring, publish
from mmspec.errors import MmspecError
from mmspec.models import POCKET, require_model, resolve_model

app = typer.Typer(help="Measurements, each paired in one run.", no_args_is_help=True)


app.command("encoder-cache")(encoder_cache)
app.command()(positions)
app.command()(speed)
app.command()(fastv)


@app.command()
def lossless(
    model: Model = POCKET,
    draft: Annotated[
        list[str] | None, typer.Option("--draft", help="A method; may be given more than once.")
    ] = None,
    draft_model: Annotated[
        str | None, typer.Option("--draft-model", help="Folder or hub name of a text-only draft model.")
    ] = None,
    head: Head = None,
    num_speculative_tokens: Tokens = None,
    scenes: Annotated[int, typer.Option(min=0, help="Held-out scenes to ask about.")] = 20,
    examples: Annotated[
        Path | None, typer.Option(help="Folder with examples.json.", show_default="ours")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer, in tokens.")] = 64,
    max_model_len: MaxModelLen = None,
    out: Out = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Compare greedy answers of every drafting method with drafting off, token for token, in float32."""
    from mmspec.bench.lossless import compare
    from mmspec.bench.prompts import example_prompts, scene_prompts
    from mmspec.cli.tables import lossless_table
    from mmspec.draft import available_methods, draft_for, packaged_head, speculative_config

    head = head or packaged_head(model)
    methods = draft or available_methods(draft_model, head)
    if "eagle3" in methods and head is None:
        raise MmspecError("draft: eagle3 needs a head; name its folder or hub name with --head")
    drafts = [
        # A number of tokens is for the methods that draft, where several are named.
        draft_for(
            method,
            draft_model,
            head,
            None if method == "none" and len(methods) > 1 else num_speculative_tokens,
        )
        for method in methods
    ]
    for config in drafts:
        speculative_config(config)  # its problems come before any engine starts
    require_model(model)
    prompts = example_prompts(examples) + scene_prompts(scenes)
    with measuring(f"model {model}", json, verbose) as terminal:
        with terminal.progress("Comparing ...") as report:
            resolve_model(model, report)
            verdict = compare(
                model, prompts, drafts, max_tokens=max_tokens, report=report, **room(max_model_len)
            ).to_dict()
        publish(terminal, lossless_table(verdict), verdict, out, json)
    raise typer.Exit(0 if verdict["identical"] else 1)
