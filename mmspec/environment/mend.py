"""Mending what is broken, and nothing else."""

import shlex
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mmspec.environment.faults import Fault, diagnose
from mmspec.environment.interpreter import Interpreter
from mmspec.environment.shims import SHIMS
from mmspec.errors import MmspecError


class MendingError(MmspecError):
    """The environment could not be changed."""

    exit_code = 1


@dataclass(frozen=True)
class Mending:
    """What was done, a line each, and what is broken still."""

    done: tuple[str, ...]
    remaining: tuple[Fault, ...]


def mend(interpreter: Interpreter | None = None, faults: list[Fault] | None = None) -> Mending:
    """Uninstalls what is broken and unused, puts in the shims that are needed, and looks again.

    Does nothing to an environment in which nothing is broken, nor to one whose torch is a GPU build.

    Args:
        interpreter: whose environment, by default this one.
        faults: from `diagnose`, where the caller has them already.

    Raises:
        MendingError: a package could not be uninstalled or site-packages cannot be written.
    """
    interpreter = interpreter or Interpreter()
    faults = diagnose(interpreter) if faults is None else faults
    done = apply(faults, interpreter)
    return Mending(tuple(done), tuple(diagnose(interpreter) if done else faults))


def apply(faults: Iterable[Fault], interpreter: Interpreter) -> list[str]:
    """Does the mend of each fault that has one, and says what it did, a line each."""
    return [_apply(fault, interpreter) for fault in faults if fault.mendable]


def unmend_shims(interpreter: Interpreter | None = None) -> list[Path]:
    """Takes every shim out again; packages that were uninstalled stay so."""
    site_packages = (interpreter or Interpreter()).site_packages
    return [file for shim in SHIMS for file in shim.remove(site_packages)]


def _apply(fault: Fault, interpreter: Interpreter) -> str:
    if fault.uninstall is not None:
        _pip_uninstall(fault.uninstall, interpreter)
        return f"uninstalled {fault.uninstall} ({fault.problem})"
    assert fault.shim is not None
    try:
        # Reinstalled even when it lies there: it was there and did not help, so it may be damaged.
        fault.shim.remove(interpreter.site_packages)
        written = fault.shim.install(interpreter.site_packages)
    except OSError as error:
        raise MendingError(
            f"cannot write into {interpreter.site_packages} ({error.strerror}): "
            "run `mmspec doctor --mend` in a virtual environment of your own"
        ) from error
    if not written:
        return f"removed the {fault.shim.name} shim ({fault.problem})"
    return f"installed the {fault.shim.name} shim ({fault.shim.why})"


def _pip_uninstall(package: str, interpreter: Interpreter) -> None:
    own = interpreter.executable == Path(sys.executable)
    target = [] if own else ["--python", str(interpreter.executable)]
    command = [sys.executable, "-m", "pip", *target, "uninstall", "--yes", "--quiet", package]
    process = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if process.returncode != 0:
        lines = (process.stderr or process.stdout).strip().splitlines() or ["pip said nothing"]
        raise MendingError(f"`{shlex.join(command)}` failed: {lines[-1]}")
