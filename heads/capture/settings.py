"""What a user chooses when capturing."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import ByteSize, TypeAdapter, ValidationError

from mmspec.errors import MmspecError

DTYPES = ("float16", "bfloat16", "float32")


@dataclass(frozen=True)
class CaptureSettings:
    """Where prompts come from, how they are answered, and what may be written.

    Attributes:
        prompts: JSONL with a conversation a line.
        folder: the captured dataset.
        dtype: of the stored states and features; None for the engine's own.
        shard_bytes: a shard is closed before it grows beyond; only a conversation larger than it is not split.
        max_bytes: of the whole folder, at any time.
        batch_size: conversations in the engine and in memory at a time.
    """

    prompts: Path
    folder: Path
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 256
    seed: int = 0
    all_turns: bool = False
    dtype: str | None = None
    shard_bytes: int = 256_000_000
    max_bytes: int = 5_000_000_000
    batch_size: int = 16

    def __post_init__(self) -> None:
        if self.dtype is not None and self.dtype not in DTYPES:
            raise MmspecError(f"dtype: {self.dtype!r} is not one of {', '.join(DTYPES)}")
        if self.temperature < 0 or not 0 < self.top_p <= 1:
            raise MmspecError("temperature must be 0 or more, and top_p above 0 and at most 1")
        if min(self.max_tokens, self.batch_size, self.shard_bytes, self.max_bytes) < 1:
            raise MmspecError("max_tokens, batch_size, shard size and most bytes must be 1 or more")


def parse_size(text: str, what: str) -> int:
    """Bytes of a size like 256MB or 5GiB.

    Raises:
        MmspecError: it is none.
    """
    try:
        return int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        raise MmspecError(f"{what}: {text!r} is not a size; give one like 256MB or 5GB") from None
