"""`mmspec chat`: one question about pictures, answered as it is written, with its statistics."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmspec.cli.cache_options import EncoderCache, EncoderCacheSize, encoder_cache_from
from mmspec.cli.options import (
    Draft,
    DraftModel,
    FastVKeep,
    FastVLayer,
    FastVScores,
    Intake,
    Json,
    MaxModelLen,
    Model,
    Pictures,
    Tokens,
    Verbose,
    draft_from,
    fastv_from,
    intake_from,
    room,
)
from mmspec.cli.show_kept import Drawing, require_drawable
from mmspec.cli.terminal import Terminal, engine_terminal, one_line_errors
from mmspec.config import IntakeConfig
from mmspec.draft import AUTO, speculative_config
from mmspec.errors import MmspecError
from mmspec.models import POCKET, require_model, resolve_model
from mmspec.pictures import picture_part, user_message
from mmspec.stats import RequestStats

if TYPE_CHECKING:
    from mmspec.config import DraftConfig

_MAX_TOKENS = 256


def command(
    prompt: Annotated[str, typer.Option("--prompt", help="The question.")],
    image: Pictures = None,
    model: Model = POCKET,
    draft: Draft = AUTO,
    draft_model: DraftModel = None,
    num_speculative_tokens: Tokens = None,
    fastv_keep: FastVKeep = None,
    fastv_layer: FastVLayer = None,
    fastv_scores: FastVScores = None,
    show_kept: Annotated[
        Path | None,
        typer.Option("--show-kept", help="Write the pictures, dropped patches dimmed, to this file."),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer, in tokens.")] = _MAX_TOKENS,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 always takes the likeliest token.")] = 0.0,
    max_model_len: MaxModelLen = None,
    intake: Intake = "on",
    encoder_cache: EncoderCache = "off",
    encoder_cache_size: EncoderCacheSize = None,
    check: Annotated[
        bool, typer.Option("--check", help="Answer again with drafting off, and compare.")
    ] = False,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Ask one question about pictures; remembers nothing."""
    if not prompt.strip():
        raise MmspecError("--prompt is empty; ask something")
    if check and temperature > 0:
        raise MmspecError("--check compares greedy answers; leave --temperature at 0 with it")
    fastv = fastv_from(fastv_keep, fastv_layer, fastv_scores)
    if show_kept is not None:
        require_drawable(show_kept, image or [], fastv)
    config = draft_from(model, draft, draft_model, num_speculative_tokens)
    speculative_config(config)  # its problems come before a model is built
    require_model(model)
    taking = intake_from(intake)
    seen_first = (taking or IntakeConfig()).settings()
    messages = user_message(prompt, [picture_part(path, seen_first) for path in image or []])
    # In this process the engine starts in half the time, and its end is the command's end.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    sampling = {"max_tokens": max_tokens, "temperature": temperature, "seed": 0}
    engine = {"model": model, "max_num_seqs": 1, "fastv": fastv, "intake": taking, **room(max_model_len)}
    cache = {"encoder_cache": encoder_cache_from(encoder_cache, encoder_cache_size)}
    with (
        engine_terminal(json_only=json, verbose=verbose) as terminal,
        one_line_errors(f"model {model}", verbose),
    ):
        drawing = Drawing(show_kept, image or [])
        result = _answer(terminal, messages, config, engine | cache, sampling, drawing)
        if check:
            baseline = _baseline(terminal, messages, engine, sampling)
            result["output_matches_baseline"] = baseline == result["token_ids"]
        _report(terminal, result, as_json=json)


def _answer(
    terminal: Terminal,
    messages: list[Any],
    draft: "DraftConfig",
    engine: dict[str, Any],
    sampling: dict[str, Any],
    drawing: "Drawing",
) -> dict[str, Any]:
    """Streams the answer to the terminal; returns text, token ids and statistics."""
    llm = _start(terminal, draft, engine)
    drawing.listen(llm)
    text, token_ids = "", []
    stats = RequestStats()
    for output in _stream(llm, messages, sampling):
        piece = output.outputs[0]
        terminal.answer.file.write(piece.text)
        terminal.answer.file.flush()
        text += piece.text
        token_ids += piece.token_ids
        stats = getattr(output, "mmspec", stats)
    terminal.answer.file.write("\n")
    terminal.answer.file.flush()  # ahead of remarks, which go another way
    drawing.write(llm)
    llm.close()
    figures = stats.to_dict()
    for change in figures.pop("intake"):  # for people: the JSON object keeps the keys that it has always had
        terminal.remarks.print(change, soft_wrap=True)
    return {"text": text, "token_ids": token_ids, **figures}


def _baseline(
    terminal: Terminal, messages: list[Any], engine: dict[str, Any], sampling: dict[str, Any]
) -> list[int]:
    """Token ids of the same answer without drafting, from an engine of its own."""
    from mmspec.config import DraftConfig

    llm = _start(terminal, DraftConfig(method="none"), engine)
    with terminal.progress("Answering again with drafting off ..."):
        token_ids = [
            token for output in _stream(llm, messages, sampling) for token in output.outputs[0].token_ids
        ]
    llm.close()
    return token_ids


def _start(terminal: Terminal, draft: "DraftConfig", engine: dict[str, Any]) -> Any:
    with terminal.progress("Starting the engine ...") as report:
        # First, since it may take minutes, and says how far it is.
        resolve_model(engine["model"], report)
        from mmspec.llm import LLM

        return LLM(draft=draft, **engine)


def _stream(llm: Any, messages: list[Any], sampling: dict[str, Any]) -> Any:
    from vllm import SamplingParams

    return llm.stream_chat(messages, SamplingParams(**sampling))


def _report(terminal: Terminal, result: dict[str, Any], *, as_json: bool) -> None:
    from mmspec.cli.tables import answer_table

    terminal.answer.print(answer_table(result))
    if as_json:
        terminal.print_json(result)
