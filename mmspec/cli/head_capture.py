"""`mmspec head capture`: training data for a head, from prompts and the target's own answers."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mmspec.cli.options import Json, MaxModelLen, Model, Verbose
from mmspec.cli.terminal import Terminal, engine_terminal, one_line_errors
from mmspec.compat import is_cpu_build
from mmspec.errors import MmspecError
from mmspec.models import POCKET, resolve_model

if TYPE_CHECKING:
    from mmspec.heads.capture import CaptureSettings, CaptureTarget, Summary
    from mmspec.heads.capture.run import Report

_NAMED = 20  # lines that could not be used; all of them are in the manifest


def capture(
    prompts: Annotated[Path, typer.Argument(help='JSONL, each line {"messages": [...]} with pictures.')],
    folder: Annotated[Path, typer.Argument(help="Where the data goes; an interrupted capture goes on.")],
    model: Model = POCKET,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 answers greedily.")] = 0.0,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of probability to draw from.")] = 1.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer, in tokens.")] = 256,
    seed: Annotated[int, typer.Option(help="Of the draws at a temperature above 0.")] = 0,
    all_turns: Annotated[
        bool, typer.Option("--all-turns", help="Answer every user turn in order, not only the last.")
    ] = False,
    aux_layers: Annotated[
        str | None,
        typer.Option(help="Layers whose inputs the head reads, like 2,15,27.", show_default="2, n/2, n-3"),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="Of what is stored: float16, bfloat16 or float32.", show_default="the engine's"),
    ] = None,
    engine_dtype: Annotated[
        str | None, typer.Option(help="What the target computes in.", show_default="as mmspec serve does")
    ] = None,
    shard_size: Annotated[str, typer.Option(help="Of one file.")] = "256MB",
    max_bytes: Annotated[str, typer.Option(help="Of the folder; capturing stops there.")] = "5GB",
    batch_size: Annotated[int, typer.Option(min=1, help="Conversations answered at a time.")] = 16,
    max_model_len: MaxModelLen = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Let the target answer PROMPTS and keep what a draft of it gets to see."""
    from mmspec.heads.capture import CaptureSettings, parse_size

    settings = CaptureSettings(
        prompts=prompts,
        folder=folder,
        temperature=temperature,
        top_p=top_p,
        max_tokens=max_tokens,
        seed=seed,
        all_turns=all_turns,
        dtype=dtype,
        shard_bytes=parse_size(shard_size, "--shard-size"),
        max_bytes=parse_size(max_bytes, "--max-bytes"),
        batch_size=batch_size,
    )
    layers = _layers(aux_layers)
    arguments = {"max_num_seqs": batch_size, "max_model_len": max_model_len, "dtype": engine_dtype}
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    with (
        engine_terminal(json_only=json, verbose=verbose) as terminal,
        one_line_errors("head capture", verbose),
    ):
        given = {name: value for name, value in arguments.items() if value is not None}
        summary = _capture(settings, model, layers, given, terminal)
        _tell(summary, settings, terminal)
        if json:
            terminal.print_json(_as_json(summary, settings))


def _capture(
    settings: "CaptureSettings",
    model: str,
    layers: list[int] | None,
    given: dict[str, Any],
    terminal: Terminal,
) -> "Summary":
    from mmspec.defaults import engine_defaults
    from mmspec.heads.capture import capture, describe_target
    from mmspec.heads.capture.run import require_lines

    require_lines(settings.prompts)  # before anything that takes long
    with terminal.progress("Looking at the target ...") as report:
        name = resolve_model(model, report)
        arguments = engine_defaults(model, given) | given
        target = describe_target(name, layers, arguments.get("dtype", "auto"))
    if settings.temperature and not target.multimodal and is_cpu_build():
        raise MmspecError(
            "--temperature: vLLM's CPU build draws the answers of a text-only target wrongly here (vLLM issue "
            "55005); capture them greedily, or on a GPU"
        )

    def start(target: "CaptureTarget", spool: Path) -> AbstractContextManager[Any]:
        return _engine(target, spool, arguments)

    try:
        with _bar(terminal.remarks) as advance:
            return capture(settings, target, start, advance)
    except KeyboardInterrupt:
        terminal.remarks.print("interrupted; the same command goes on from here")
        raise


@contextmanager
def _engine(target: "CaptureTarget", spool: Path, arguments: dict[str, Any]) -> Iterator[Any]:
    from mmspec.defaults import keep_thread_count
    from mmspec.heads.capture.start import running_engine
    from mmspec.patches import IN_PROCESS, apply_missing

    apply_missing(IN_PROCESS)
    keep_thread_count()
    with running_engine(target, spool, **(arguments | {"dtype": target.dtype})) as engine:
        yield engine


@contextmanager
def _bar(console: Console) -> Iterator["Report"]:
    """A bar with what is published so far; without a terminal a line now and then."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("Capturing", total=None)

        def report(passed: int, lines: int, counts: Any) -> None:
            text = f"Capturing ({counts.samples} samples, {counts.answer_tokens} answer tokens on disk)"
            progress.update(task, total=lines, completed=passed, description=text)
            if not console.is_terminal:
                console.print(f"{text}: {passed} of {lines} lines")

        yield report


def _layers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise MmspecError(f"--aux-layers: {text!r} is no list of numbers; give one like 2,15,27") from None


def _tell(summary: "Summary", settings: "CaptureSettings", terminal: Terminal) -> None:
    counts = summary.counts
    for line in summary.mended:
        terminal.remarks.print(line, soft_wrap=True)
    for skipped in summary.skipped[:_NAMED]:
        terminal.remarks.print(f"skipped {skipped}", soft_wrap=True)
    if summary.skipped:
        terminal.answer.print(
            f"skipped {len(summary.skipped)} of {summary.lines} lines; manifest.json names them"
        )
    if summary.full:
        terminal.answer.print(
            f"stopped at --max-bytes ({settings.max_bytes} bytes) with {counts.conversations} of "
            f"{summary.lines} conversations; a larger one goes on from here",
            soft_wrap=True,
        )
    terminal.answer.print(
        f"{settings.folder}: {counts.samples} samples, {counts.tokens} tokens, {counts.answer_tokens} of them "
        f"answers, {counts.pictures} pictures, {summary.bytes / 1e6:.1f} MB",
        soft_wrap=True,
    )


def _as_json(summary: "Summary", settings: "CaptureSettings") -> dict[str, Any]:
    return {
        "folder": str(settings.folder),
        **summary.counts.model_dump(),
        "lines": summary.lines,
        "bytes": summary.bytes,
        "complete": not summary.full,
        "skipped_lines": [{"line": one.line, "reason": one.reason} for one in summary.skipped[:_NAMED]],
    }
