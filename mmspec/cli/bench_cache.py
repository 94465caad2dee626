"""`mmspec bench encoder-cache`: what the vision-feature cache spares."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from mmspec.cli.options import Json, MaxModelLen, Model, Out, Verbose, drafting_with, room
from mmspec.cli.results import measuring, publish
from mmspec.errors import MmspecError
from mmspec.models import POCKET, require_model, resolve_model

_SIDES = (448, 1344)
_POCKET_SIDES = (224,)  # the pocket VLM scales every picture to as many tokens


def encoder_cache(
    model: Model = POCKET,
    true_size_tower: Annotated[
        bool,
        typer.Option(
            "--true-size-tower",
            help="Instead of MODEL: Qwen2.5-VL-7B's vision tower with random weights behind a tiny language model "
            "(4 GB of memory; on a CPU a large picture takes minutes).",
        ),
    ] = False,
    head: Annotated[
        str | None, typer.Option("--head", help="Folder or hub name of an EAGLE-3 head to draft with.")
    ] = None,
    side: Annotated[
        list[int] | None,
        typer.Option("--side", min=56, help="Side of the pictures, in pixels; may be given more than once."),
    ] = None,
    rounds: Annotated[
        list[int] | None,
        typer.Option(
            "--rounds",
            min=1,
            help="Different pictures of each size, 3 by default; one number, or one for each --side in turn.",
        ),
    ] = None,
    max_model_len: MaxModelLen = None,
    out: Out = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Time to the first token: cold, seen, in a new process, in a second engine, and with the features handed in."""
    from mmspec.cli.tables import nested_table

    require_model(model)
    if head is not None:
        drafting_with(model, head)
    counts = _rounds(side or (_SIDES if true_size_tower or model != POCKET else _POCKET_SIDES), rounds)
    with measuring(f"model {model}", json, verbose) as terminal:
        with terminal.progress("Measuring ...") as report:
            from mmspec.bench.encoder_cache import measure

            engine = _engine(model, true_size_tower, report)
            if head is not None:
                engine["draft"] = {"method": "eagle3", "model": head}
            result = measure(engine | room(max_model_len), counts, report=report).to_dict()
        publish(terminal, nested_table(result), result, out, json)


def _rounds(sides: Sequence[int], rounds: Sequence[int] | None) -> dict[int, int]:
    rounds = list(rounds or [3])
    if len(set(sides)) < len(sides):
        raise MmspecError("--side: the same size twice; --rounds says how many pictures there are of each")
    if len(rounds) not in (1, len(sides)):
        raise MmspecError(
            f"--rounds: {len(rounds)} numbers for {len(sides)} sizes; give one, or one for each"
        )
    return dict(zip(sides, rounds * (len(sides) // len(rounds)), strict=True))


def _engine(model: str, true_size_tower: bool, report: Callable[[str], None]) -> dict[str, Any]:
    if true_size_tower:
        from mmspec.bench.large_tower import build

        report("building the checkpoint")
        model = str(build())
    else:
        resolve_model(model, report)
    return {"model": model, "draft": None, "dtype": "float32"}
