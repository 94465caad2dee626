"""What a section is given and what it returns."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Size:
    """Widths of a target and its head, and how much is measured at them."""

    name: str
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    mlp: int
    layers: int
    vocabulary: int
    draft_vocabulary: int
    batch_tokens: tuple[int, ...]  # of a training step
    sequence: int  # tokens of a training sequence, half of them its answer
    kv_tokens: int  # before a draft
    repeats: int
    fused_layers: int = 3
    rope_theta: float = 1e6
    norm_eps: float = 1e-6


_QWEN = Size(
    name="qwen2.5-vl-7b",
    hidden=3584,
    heads=28,
    kv_heads=4,
    head_size=128,
    mlp=18944,
    layers=28,
    vocabulary=152064,
    draft_vocabulary=32000,
    batch_tokens=(2048, 8192, 16384),
    sequence=1024,
    kv_tokens=1000,
    repeats=30,
)
_TINY = Size(
    name="tiny",
    hidden=64,
    heads=4,
    kv_heads=2,
    head_size=16,
    mlp=96,
    layers=2,
    vocabulary=200,
    draft_vocabulary=120,
    batch_tokens=(64,),
    sequence=32,
    kv_tokens=100,
    repeats=3,
)
SIZES = {size.name: size for size in (_QWEN, _TINY)}


@dataclass(frozen=True)
class Run:
    """One run of the script.

    Attributes:
        fault: what to break in the head on purpose, by its name in `gpu_check.head.FAULTS`.
    """

    size: Size
    device: torch.device
    fault: str | None = None

    @property
    def dtype(self) -> torch.dtype:
        """What is fast here."""
        return torch.bfloat16 if self.device.type == "cuda" else torch.float32


@dataclass
class Row:
    """One line of a section's table.

    Attributes:
        failure: what is wrong, in one line; the script then exits with 1.
    """

    what: str
    figures: dict[str, float | str | None] = field(default_factory=dict)
    failure: str | None = None


Section = Callable[[Run], list[Row]]


def short_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
