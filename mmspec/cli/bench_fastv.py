"""`mmspec bench fastv`: pruning against a reference, against arithmetic, and against unpruned answers."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from mmspec.cli.options import Json, Out, Verbose, drafting_with, writable
from mmspec.cli.results import measuring, publish
from mmspec.config import FastVConfig
from mmspec.encoders.fastv.settings import SCORES
from mmspec.errors import MmspecError
from mmspec.heads.pocket import TOKENS
from mmspec.models import POCKET, resolve_model

_KEEPS = (1.0, 0.75, 0.5, 0.25, 0.1)


def fastv(
    layer: Annotated[int, typer.Option("--layer", min=1, help="First layer that is pruned (K).")] = 2,
    keep: Annotated[
        list[float] | None, typer.Option("--keep", help="A share to try; may be given more than once.")
    ] = None,
    scores: Annotated[
        list[str] | None, typer.Option("--scores", help="A criterion to try; may be given more than once.")
    ] = None,
    scenes: Annotated[
        int, typer.Option(min=0, help="Held-out scenes to ask about, 0 or at least 2; 0 leaves answers out.")
    ] = 30,
    references: Annotated[
        int, typer.Option(min=0, help="Prompts to compare with the reference; 0 leaves this out.")
    ] = 4,
    head: Annotated[
        str | None, typer.Option("--head", help="An EAGLE-3 head; with it, drafting under pruning too.")
    ] = None,
    layers: Annotated[int, typer.Option(min=3, help="Layers of the model with true widths.")] = 12,
    visual: Annotated[int, typer.Option(min=4, help="Visual tokens of its prompt, in rows of 40.")] = 1000,
    dtype: Annotated[Literal["float32", "bfloat16"], typer.Option(help="Its type.")] = "float32",
    repeats: Annotated[
        int, typer.Option(min=0, help="Times that each share is timed; 0 leaves times out.")
    ] = 5,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compiled",
            help="Time an engine that compiles; each pruned prefill also with the layers behind K eager.",
        ),
    ] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw answers by share to this file.", callback=writable)
    ] = None,
    out: Out = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """FastV on the pocket model: equality with transformers, answers by criterion and share, times at true widths."""
    keeps, criteria = tuple(keep or _KEEPS), tuple(scores or SCORES)
    for share in keeps:
        FastVConfig(keep=share)  # its problems come before any engine starts
    for name in criteria:
        FastVConfig(scores=name)
    if plot is not None and find_spec("matplotlib") is None:
        raise MmspecError("--plot needs matplotlib; pip install 'mmspec[train]', or leave it out")
    if head is not None:
        drafting_with(POCKET, head)
    if scenes == 1:
        raise MmspecError("--scenes 1: pictures are exchanged between scenes; give 0 or at least 2")

    timed = repeats and min(keeps) < 1
    if not (timed or scenes or references or head):
        raise MmspecError(
            "nothing to measure: --scenes, --references and --repeats are 0, and there is no --head"
        )
    if compiled and not timed:
        raise MmspecError(
            "--compiled says what is timed; give --repeats above 0 and a --keep below 1, or leave it out"
        )

    def measure(report: Callable[[str], None]) -> dict[str, Any]:
        return {
            **_answers(layer, keeps, criteria, scenes, references, head, report),
            **(_times(layer, keeps, layers, visual, dtype, repeats, compiled, report) if timed else {}),
        }

    _run(measure, plot, out, json, verbose)


def _answers(
    layer: int,
    keeps: tuple[float, ...],
    criteria: tuple[str, ...],
    scenes: int,
    references: int,
    head: str | None,
    report: Callable[[str], None],
) -> dict[str, Any]:
    from mmspec.bench.fastv import Setting, answers_by_share, drafting, identical_to_reference
    from mmspec.bench.prompts import caption_prompts, scene_prompts

    setting = Setting(resolve_model(POCKET, report), layer, keeps, {"max_model_len": 1024})
    result: dict[str, Any] = {}
    if references:
        result["identical_to_reference"] = identical_to_reference(setting, scene_prompts(references), report)
    if scenes:
        result |= answers_by_share(setting, criteria, scenes, report)
    if head:
        result["drafting"] = drafting(setting, head, TOKENS, caption_prompts(scenes or 12), report)
    return result


def _times(
    layer: int,
    keeps: tuple[float, ...],
    layers: int,
    visual: int,
    dtype: str,
    repeats: int,
    compiled: bool,
    report: Callable[[str], None],
) -> dict[str, Any]:
    from mmspec.bench.fastv_time import Shape, measure

    columns = min(visual, 40)
    shape = Shape(layers, layer, columns, visual // columns, dtype)
    shares = [one for one in keeps if one < 1]
    return measure(shape, shares, repeats=repeats, compiled=compiled, report=report)


def _run(
    measure: Callable[[Callable[[str], None]], dict[str, Any]],
    plot: Path | None,
    out: Path | None,
    json: bool,
    verbose: bool,
) -> None:
    from mmspec.cli.tables import nested_table

    with measuring("bench fastv", json, verbose) as terminal:
        with terminal.progress("Measuring ...") as report:
            result = measure(report)
        if plot is not None and "accuracy" in result:
            from mmspec.bench.fastv_plot import plot as draw

            draw(result, plot)
        publish(terminal, nested_table(result), result, out, json)
    raise typer.Exit(0 if result.get("identical_to_reference", True) else 1)
