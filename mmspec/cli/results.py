"""What every measurement does around its own work: an engine in this process, a table, a file, a JSON object."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from mmspec.cli.terminal import Terminal, engine_terminal, one_line_errors


@contextmanager
def measuring(what: str, json: bool, verbose: bool) -> Iterator[Terminal]:
    """A terminal for a measurement whose errors name `what`; its engines run in this process unless told otherwise."""
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    with engine_terminal(json_only=json, verbose=verbose) as terminal, one_line_errors(what, verbose):
        yield terminal


def publish(
    terminal: Terminal, answer: RenderableType, result: dict[str, Any], out: Path | None, json: bool
) -> None:
    """Shows a result, keeps it with its provenance in `out`, and prints it as JSON where asked."""
    from mmspec.bench.provenance import write_result

    terminal.answer.print(answer)
    if out is not None:
        write_result(out, result)
    if json:
        terminal.print_json(result)
