"""A Python interpreter seen from outside: code runs in it as a subprocess, so a crash there is only news."""

import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

_MARK = "mmspec-report:"
_LOCATE = """
import sys, sysconfig
report({"purelib": sysconfig.get_path("purelib"), "python": sys.version.split()[0]})
"""


@dataclass(frozen=True)
class Report:
    """What a piece of code said before its process ended.

    Attributes:
        values: what the code reported, empty when it never came to that.
        error: the last line it wrote to stderr, or None when it ended well.
    """

    values: dict[str, Any]
    error: str | None


@dataclass(frozen=True)
class Interpreter:
    """A Python executable, by default the one that runs this."""

    executable: Path = field(default_factory=lambda: Path(sys.executable))

    def run(self, code: str, timeout: float = 120.0) -> Report:
        """Runs code that may call `report(dict)`, away from the current folder and from stdin.

        Args:
            code: Python source.
            timeout: in seconds; a process that takes longer is ended and counts as failed.
        """
        prelude = f"import json\ndef report(values): print({_MARK!r} + json.dumps(values), flush=True)\n"
        try:
            # -P keeps the current folder out of sys.path: a stray torch.py there must not be probed.
            process = subprocess.run(
                [str(self.executable), "-P", "-c", prelude + code],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"},
            )
        except subprocess.TimeoutExpired:
            return Report({}, f"no answer within {timeout:.0f} s")
        except OSError as error:
            return Report({}, f"{self.executable} does not run: {error}")
        values: dict[str, Any] = {}
        for line in process.stdout.splitlines():
            if line.startswith(_MARK):
                values |= json.loads(line.removeprefix(_MARK))
        return Report(values, None if process.returncode == 0 else _last_line(process))

    @cached_property
    def site_packages(self) -> Path:
        """The folder where this interpreter's pure Python packages lie.

        Raises:
            RuntimeError: the interpreter does not run.
        """
        if self.executable == Path(sys.executable):
            return Path(sysconfig.get_path("purelib"))
        report = self.run(_LOCATE)
        if report.error is not None:
            raise RuntimeError(report.error)
        return Path(report.values["purelib"])


def _last_line(process: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in process.stderr.splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"ended with exit code {process.returncode}"
