"""Training EAGLE-3 heads on captured data: speculators' model and formats, with the target's vision features."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmspec.heads.train.launch import train_head
    from mmspec.heads.train.settings import TrainSettings

__all__ = ["TrainSettings", "train_head"]

# Loaded when first used: steps and loss are used where neither speculators nor vLLM are installed, too.
_HOMES = {"train_head": "mmspec.heads.train.launch", "TrainSettings": "mmspec.heads.train.settings"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
