"""`mmspec head eval`: a head's acceptance, simulated offline and measured in the engine."""

import json as json_format
from pathlib import Path
from typing import Annotated, Any

import typer

from mmspec.cli.options import Json, MaxModelLen, Model, Out, Verbose, room
from mmspec.cli.results import measuring, publish
from mmspec.errors import MmspecError
from mmspec.models import POCKET, require_model, resolve_model

Messages = list[dict[str, Any]]


def evaluate(
    head: Annotated[Path, typer.Argument(metavar="HEAD", help="Folder of a head.")],
    model: Model = POCKET,
    prompts: Annotated[
        list[Path] | None,
        typer.Option(
            help='JSONL, each line {"messages": [...]}; a kind of prompt a file, named after it.',
            show_default="captions, questions and text for the pocket model",
        ),
    ] = None,
    temperature: Annotated[
        list[float] | None, typer.Option(min=0.0, help="May be given more than once.", show_default="0")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Tokens drafted per step.")] = 5,
    scenes: Annotated[int, typer.Option(min=1, help="Held-out scenes, without --prompts.")] = 20,
    max_tokens: Annotated[int, typer.Option(min=2, help="Longest answer, in tokens.")] = 96,
    max_model_len: MaxModelLen = None,
    out: Out = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Acceptance by kind of prompt and temperature: simulated along the target's answers, and in the engine."""
    require_model(model)
    kinds = _kinds(model, prompts, scenes)
    with measuring(f"head {head}", json, verbose) as terminal:
        from mmspec.bench.head import evaluate_head
        from mmspec.cli.tables import nested_table

        with terminal.progress("Evaluating ...") as report:
            found = evaluate_head(
                str(head),
                resolve_model(model, report),
                kinds,
                temperatures=temperature or [0.0],
                tokens=k,
                max_tokens=max_tokens,
                report=report,
                **room(max_model_len),
            )
        result = {
            kind: {at: one.to_dict() for at, one in by_temperature.items()}
            for kind, by_temperature in found.items()
        }
        publish(terminal, nested_table(result), result, out, json)


def _kinds(model: str, files: list[Path] | None, scenes: int) -> dict[str, list[Messages]]:
    if files:
        return {path.stem: _read(path) for path in files}
    if model != POCKET:
        raise MmspecError("give --prompts: only the pocket model has prompts of its own")
    from mmspec.bench.prompts import caption_prompts, question_prompts, text_prompts

    return {
        "captions": [prompt.messages() for prompt in caption_prompts(scenes)],
        "questions": [prompt.messages() for prompt in question_prompts(scenes)],
        "text": [prompt.messages() for prompt in text_prompts()],
    }


def _read(path: Path) -> list[Messages]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [json_format.loads(line)["messages"] for line in lines if line.strip()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MmspecError(f'prompts {path}: {error}; give lines of {{"messages": [...]}}') from None
    if not found:
        raise MmspecError(f"prompts {path}: the file is empty; give a conversation a line")
    return found
