"""A command of this process with its streams caught, those of C++ and of other processes too."""

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Captured:
    """What a command ended with, and what it wrote."""

    code: int
    out: str
    err: str


def run(command: Callable[[], None]) -> Captured:
    """Runs what ends by `SystemExit`, as `mmspec.cli.main.main` does."""
    kept, code = (os.dup(1), os.dup(2)), -1
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            command()
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, copy in enumerate(kept, 1):
                os.dup2(copy, number)
                os.close(copy)
        out.seek(0)
        err.seek(0)
        return Captured(code, out.read(), err.read())
