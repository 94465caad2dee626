"""Rows as a plain table, and with their provenance as JSON."""

import json
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from gpu_check.run import Row, Run
from mmspec.bench.provenance import provenance


def table(title: str, rows: Sequence[Row]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row.figures))
    lines = [[title, *columns]]
    lines += [[row.what, *(_shown(row.figures.get(name)) for name in columns)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
        for line in lines
    )


def report(rows: Mapping[str, Sequence[Row]], run: Run, seconds: float) -> dict[str, Any]:
    """All figures, what failed, and what made them."""
    return {
        "result": {
            "size": run.size.name,
            "fault": run.fault,
            "sections": {
                name: [{"what": row.what, **row.figures, "failure": row.failure} for row in section]
                for name, section in rows.items()
            },
            "failures": [
                f"{name}: {row.failure}" for name, found in rows.items() for row in found if row.failure
            ],
            "seconds": round(seconds, 1),
        },
        "provenance": {**_provenance(), "device": _device(run.device)},
    }


def write(path: Path, result: dict[str, Any]) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    part.replace(path)


def _provenance() -> dict[str, Any]:
    try:
        return provenance()
    except FileNotFoundError:  # without git
        return {"command": [Path(sys.argv[0]).name, *sys.argv[1:]], "revision": None}


def _device(device: torch.device) -> dict[str, Any]:
    versions = {name: _version(name) for name in ("torch", "transformers", "triton")}
    found: dict[str, Any] = {"name": "CPU", **versions, "cuda": torch.version.cuda}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "name": properties.name,
            "memory_gib": round(properties.total_memory / 2**30, 1),
            "capability": f"{properties.major}.{properties.minor}",
        }
    return found


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _shown(value: float | str | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 or value == 0 else f"{value:.1e}"
