"""Tiny random checkpoints with real architectures, made in seconds: targets, a text-only Llama, EAGLE-3 heads.

`python -m tests.tiny FOLDER` writes all of them for use by hand.
"""

from collections.abc import Callable
from pathlib import Path

from tests.tiny.heads import build_eagle3_head
from tests.tiny.targets import TARGETS, build_llama

FAMILIES = tuple(TARGETS)

CHECKPOINTS: dict[str, Callable[[Path], None]] = {
    **TARGETS,
    "llama": build_llama,
    "eagle3": build_eagle3_head,
    "eagle3_speculators": lambda folder: build_eagle3_head(folder, layout="speculators"),
}


def build_checkpoint(name: str, folder: Path) -> Path:
    """Builds `CHECKPOINTS[name]` in `folder`, unless it is there, and returns the folder."""
    if not (folder / "config.json").exists():
        CHECKPOINTS[name](folder)
    return folder


__all__ = ["CHECKPOINTS", "FAMILIES", "build_checkpoint"]
