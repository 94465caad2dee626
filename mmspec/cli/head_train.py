"""`mmspec head train`: a head from captured data."""

from json import dumps as to_json
from pathlib import Path
from typing import Annotated, Any

import typer

from mmspec.cli.options import Json, Verbose
from mmspec.cli.terminal import one_line_errors

_HELP_SET = "Another setting as name=value, such as step_decay=0.9; may be given more than once."


def train(
    data: Annotated[Path, typer.Argument(help="Folder that `mmspec head capture` wrote.")],
    folder: Annotated[Path, typer.Argument(help="Where checkpoint, log, plot and the head go.")],
    target: Annotated[
        str, typer.Option("--target", help="pocket, or the target's checkpoint folder.")
    ] = "pocket",
    vision: Annotated[
        str,
        typer.Option(
            help="What the head gets of pictures: text (placeholders), features, or global (a summary)."
        ),
    ] = "features",
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps.")] = 2000,
    draft_vocab_size: Annotated[int, typer.Option(min=1, help="Tokens that the head can say.")] = 32_000,
    rate: Annotated[float, typer.Option(help="Peak learning rate.")] = 1e-3,
    batch_tokens: Annotated[
        int, typer.Option(min=2, help="Tokens of a forward pass, padding included.")
    ] = 2048,
    setting: Annotated[list[str] | None, typer.Option("--set", help=_HELP_SET)] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Train an EAGLE-3 head; goes on where FOLDER stopped. Under torchrun every process trains on its own part."""
    given: dict[str, Any] = {
        "vision": vision,
        "steps": steps,
        "draft_vocab_size": draft_vocab_size,
        "rate": rate,
        "batch_tokens": batch_tokens,
    }
    for pair in setting or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"{pair} is not name=value")
        given[name] = value
    with one_line_errors("head train", verbose):
        from mmspec.heads.train import TrainSettings, train_head
        from mmspec.models import resolve_model

        checkpoint = Path(resolve_model(target))
        scores = train_head(data, checkpoint, folder, TrainSettings.parse(given), target)
    head = folder / "head"
    length = scores["mean_acceptance_length"]
    typer.echo(f"{head}: mean acceptance length {length:.2f} on samples kept apart, simulated")
    if json:
        typer.echo(to_json({"head": str(head), **scores}))
