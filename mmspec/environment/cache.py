"""Where things are kept that can be made again, and what is there."""

from dataclasses import dataclass
from pathlib import Path

from mmspec.encoders.pocket.base import gguf_path
from mmspec.encoders.pocket.checkpoint import NEEDED_BYTES, cache_folder, checkpoint_folder, is_whole
from mmspec.errors import MmspecError

__all__ = ["NEEDED_GIB", "Pocket", "cache_folder", "pocket"]

NEEDED_GIB = NEEDED_BYTES / (1 << 30)


@dataclass(frozen=True)
class Pocket:
    """The state of the pocket VLM.

    Attributes:
        folder: where it lies whole, None when it is not built.
        problem: why it could not be built now, None when it could.
    """

    folder: Path | None
    problem: str | None


def pocket() -> Pocket:
    """The state of the pocket VLM; nothing is built."""
    try:
        folder = checkpoint_folder()
        if is_whole(folder):
            return Pocket(folder, None)
        gguf_path()
    except MmspecError as error:
        return Pocket(None, str(error))
    return Pocket(None, None)
