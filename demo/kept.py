"""A question's pictures with the patches that pruning dropped dimmed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmspec.errors import MmspecError

if TYPE_CHECKING:
    from PIL.Image import Image


def kept_picture(kept: Sequence[dict[str, Any]], paths: Sequence[str], *, crops: bool) -> "Image":
    """The drawing.

    Args:
        kept: for each picture of the prompt, `seen` and `kept` as the server tells them.
        paths: the pictures' files, in the same order.
        crops: the model sees the middle square only.

    Raises:
        MmspecError: the server tells of other pictures than these.
    """
    from mmspec.encoders.fastv.drawing import as_seen, draw_kept

    if len(kept) != len(paths):
        raise MmspecError(f"The server tells of {len(kept)} pictures, and the question has {len(paths)}.")
    flags = [flags_of(picture) for picture in kept]
    return draw_kept([as_seen(Path(path), crops=crops) for path in paths], flags)


def flags_of(picture: dict[str, Any]) -> list[bool]:
    """Whether each visual token of a picture was kept, row by row."""
    kept = set(picture["kept"])
    return [place in kept for place in range(picture["seen"])]
