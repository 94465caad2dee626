"""`mmspec bench positions` and `mmspec bench speed`: what a head brings, and what right positions bring to it."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from mmspec.cli.options import Head, Json, MaxModelLen, Model, Out, Verbose, drafting_with, room
from mmspec.cli.results import measuring, publish
from mmspec.models import POCKET, require_model, resolve_model

MaxTokens = Annotated[int, typer.Option(min=2, help="Longest answer, in tokens.")]
Scenes = Annotated[int, typer.Option(min=1, help="Held-out scenes to ask about, for each kind of prompt.")]


def positions(
    head: Head = None,
    model: Model = POCKET,
    k: Annotated[int, typer.Option("-k", min=2, help="Tokens drafted per step.")] = 5,
    scenes: Scenes = 20,
    max_tokens: MaxTokens = 96,
    max_model_len: MaxModelLen = None,
    out: Out = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Acceptance of a head under stock vLLM and under mmspec, on prompts with and without pictures."""

    draft = drafting_with(model, head, num_speculative_tokens=k)

    def measure(report: Callable[[str], None]) -> dict[str, Any]:
        from mmspec.bench.positions import compare
        from mmspec.bench.prompts import caption_prompts, question_prompts, text_prompts

        prompts = {"image": caption_prompts(scenes) + question_prompts(scenes), "text": text_prompts()}
        kinds = {kind: [prompt.messages() for prompt in asked] for kind, asked in prompts.items()}
        found = compare(model, draft, kinds, max_tokens=max_tokens, report=report, **room(max_model_len))
        return {kind: {name: one.to_dict() for name, one in by.items()} for kind, by in found.items()}

    _run(measure, model, out, json, verbose)


def speed(
    head: Head = None,
    model: Model = POCKET,
    k: Annotated[list[int] | None, typer.Option("-k", min=1, help="Tokens drafted per step to try.")] = None,
    scenes: Scenes = 20,
    repeats: Annotated[int, typer.Option(min=1, help="Times that each case is measured.")] = 1,
    max_tokens: MaxTokens = 128,
    max_model_len: MaxModelLen = None,
    out: Out = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Time per output token with drafting off and on in turn: captions, questions, batches of 4, temperature 0.8."""

    draft = drafting_with(model, head)

    def measure_all(report: Callable[[str], None]) -> dict[str, Any]:
        from mmspec.bench.prompts import caption_prompts, question_prompts
        from mmspec.bench.speed import Case, measure

        captions, questions = caption_prompts(scenes), question_prompts(scenes)
        cases = {
            "captions": Case(captions),
            "questions": Case(questions),
            "batch_4": Case(captions, batch=4),
            "temperature_0_8": Case(captions, temperature=0.8),
        }
        found = measure(
            model,
            draft,
            cases,
            ks=k or (3, 4, 5, 6, 7),
            repeats=repeats,
            max_tokens=max_tokens,
            report=report,
            **room(max_model_len),
        )
        return {name: one.to_dict() for name, one in found.items()}

    _run(measure_all, model, out, json, verbose)


def _run(
    measure: Callable[[Callable[[str], None]], dict[str, Any]],
    model: str,
    out: Path | None,
    json: bool,
    verbose: bool,
) -> None:
    from mmspec.cli.tables import nested_table

    require_model(model)
    with measuring(f"model {model}", json, verbose) as terminal:
        with terminal.progress("Measuring ...") as report:
            resolve_model(model, report)
            result = measure(report)
        publish(terminal, nested_table(result), result, out, json)
