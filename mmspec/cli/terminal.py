"""What a command writes, and what the engine behind it may not write over it."""

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from rich.console import Console

from mmspec.errors import MmspecError


@dataclass(frozen=True)
class Terminal:
    """Where a command's answer and its remarks go while an engine runs in the same process.

    With `--json` standard output holds the JSON object alone, and the answer goes to standard error.
    """

    answer: Console
    remarks: Console
    result: Console

    def print_json(self, values: dict[str, Any]) -> None:
        self.result.file.write(json.dumps(values) + "\n")
        self.result.file.flush()

    @contextmanager
    def progress(self, text: str) -> Iterator[Callable[[str], None]]:
        """A line that says what is awaited; yields what changes it. Without a terminal, a line each."""
        if not self.remarks.is_terminal:
            self.remarks.print(text)
            yield self.remarks.print
            return
        with self.remarks.status(text) as status:
            yield status.update


@contextmanager
def engine_terminal(*, json_only: bool, verbose: bool) -> Iterator[Terminal]:
    """Keeps vLLM's logs, progress bars and C++ messages off the terminal; `verbose` shows them on stderr.

    To be entered before vLLM is imported, since vLLM reads its logging settings then.
    """
    if not verbose:
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    sys.stdout.flush()
    sys.stderr.flush()
    out, err = os.dup(1), os.dup(2)
    try:
        with (
            os.fdopen(os.dup(out), "w") as stdout,
            os.fdopen(os.dup(err), "w") as stderr,
            _sink(verbose, err) as sink,
        ):
            os.dup2(sink, 1)
            os.dup2(sink, 2)
            # Answers and file names may hold brackets, which are no markup.
            remarks, result = (Console(file=file, markup=False, highlight=False) for file in (stderr, stdout))
            yield Terminal(answer=remarks if json_only else result, remarks=remarks, result=result)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.close(out)
        os.close(err)


@contextmanager
def one_line_errors(what: str, verbose: bool) -> Iterator[None]:
    """Turns whatever the engine raises into one line; `verbose` prints the traceback first."""
    try:
        yield
    except (MmspecError, KeyboardInterrupt):
        raise
    except Exception as error:
        if verbose:
            traceback.print_exc()
        raise MmspecError(
            f"{what}: {first_reason(error)}{'' if verbose else ' (--verbose shows the whole log)'}"
        ) from error


def first_reason(error: BaseException) -> str:
    """The part of an engine's exception that says what is wrong, as one line."""
    # pydantic wraps vLLM's own checks of its configuration
    text = str(error.errors()[0]["msg"]) if isinstance(error, ValidationError) else str(error)
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return first.removeprefix("Value error, ")


@contextmanager
def _sink(verbose: bool, err: int) -> Iterator[int]:
    if verbose:
        yield err
    else:
        with tempfile.TemporaryFile() as file:
            yield file.fileno()
