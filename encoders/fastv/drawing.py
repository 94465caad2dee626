"""A picture with its dropped patches dimmed."""

import math
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from mmspec.encoders.intake.settings import DEFAULTS, IntakeSettings
from mmspec.errors import MmspecError

_DIMMED = 0.25  # of a dropped patch's brightness that is left
_SMALLEST = 336  # pixels of the drawing's shorter side at least, so that small pictures show their grid
_GAP = 8
_LINE = (128, 128, 128)


def draw_kept(pictures: Sequence[Image.Image], kept: Sequence[Sequence[bool]]) -> Image.Image:
    """The pictures side by side, as the processor got them, dropped patches dark.

    Args:
        pictures: as the prompt has them.
        kept: for each picture, whether each of its tokens was kept, row by row.
    """
    drawn = [_draw(picture, flags) for picture, flags in zip(pictures, kept, strict=True)]
    width = sum(one.width for one in drawn) + _GAP * (len(drawn) - 1)
    sheet = Image.new("RGB", (width, max(one.height for one in drawn)), "white")
    left = 0
    for one in drawn:
        sheet.paste(one, (left, 0))
        left += one.width + _GAP
    return sheet


def grid(tokens: int, size: tuple[int, int]) -> tuple[int, int]:
    """Columns and rows of a picture's tokens: the factors of their number that are nearest to its shape.

    Args:
        tokens: how many the picture has.
        size: its width and height, as the processor got it.
    """
    wanted = math.log(size[0] / size[1])
    columns = [count for count in range(1, tokens + 1) if tokens % count == 0]
    best = min(columns, key=lambda count: abs(math.log(count * count / tokens) - wanted))
    return best, tokens // best


def as_seen(path: Path, intake: IntakeSettings = DEFAULTS, *, crops: bool) -> Image.Image:
    """A picture file as the model's processor looks at it.

    Args:
        intake: the engine's settings.
        crops: the processor takes the middle square only, as LLaVA's does.
    """
    from mmspec.encoders.intake.picture import take_in

    picture: Image.Image = take_in(path.read_bytes(), intake).image
    return centre_square(picture) if crops else picture


def centre_square(picture: Image.Image) -> Image.Image:
    """What a processor that crops, such as LLaVA's, sees of it."""
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    return picture.crop((left, top, left + side, top + side))


def _draw(picture: Image.Image, kept: Sequence[bool]) -> Image.Image:
    if not kept:
        raise MmspecError("a picture without visual tokens cannot be drawn; give pictures of the request")
    columns, rows = grid(len(kept), picture.size)
    scale = max(_SMALLEST / min(picture.size), 1)
    # A whole number of pixels for each patch, so that their borders fall where they are.
    across, down = (
        max(round(picture.width * scale / columns), 1),
        max(round(picture.height * scale / rows), 1),
    )
    bright = picture.convert("RGB").resize((across * columns, down * rows))
    mask = Image.new("L", (columns, rows))
    mask.putdata([255 if flag else 0 for flag in kept])
    dark = Image.blend(Image.new("RGB", bright.size), bright, _DIMMED)
    drawing = Image.composite(bright, dark, mask.resize(bright.size, Image.Resampling.NEAREST))
    pen = ImageDraw.Draw(drawing)
    for column in range(1, columns):
        pen.line((column * across, 0, column * across, drawing.height), _LINE)
    for row in range(1, rows):
        pen.line((0, row * down, drawing.width, row * down), _LINE)
    return drawing
