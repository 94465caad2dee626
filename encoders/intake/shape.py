"""Tiny and extreme shapes, brought within what every processor takes, without distortion."""

import math

from PIL import Image, ImageColor, ImageOps

from mmspec.encoders.intake.refusal import PictureRefused
from mmspec.encoders.intake.settings import MIN_SIDE, IntakeSettings


def to_fitting_shape(image: Image.Image, settings: IntakeSettings, changes: list[str]) -> Image.Image:
    """Enlarges a picture whose sides are both below `MIN_SIDE`, then pads a side that is still too short.

    Raises:
        PictureRefused: padded it would have too many pixels.
    """
    return _padded(_enlarged(image, changes), settings, changes)


def _enlarged(image: Image.Image, changes: list[str]) -> Image.Image:
    """What processors do with a small picture, too: they have a least number of pixels."""
    if max(image.size) >= MIN_SIDE:
        return image
    factor = MIN_SIDE / max(image.size)
    size = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
    changes.append(f"enlarged from {_pixels(image.size)} to {_pixels(size)} pixels")
    return image.resize(size, Image.Resampling.BICUBIC)


def _padded(image: Image.Image, settings: IntakeSettings, changes: list[str]) -> Image.Image:
    """Padding keeps a thin line thin, where scaling the short side would distort it."""
    least = max(MIN_SIDE, math.ceil(max(image.size) / settings.max_aspect_ratio))
    width, height = max(image.width, least), max(image.height, least)
    if (width, height) == image.size:
        return image
    if width * height > settings.max_pixels:
        raise PictureRefused(
            f"{_pixels(image.size)} pixels are too long for their width: sides may differ by a factor of "
            f"{settings.max_aspect_ratio:g}, and padded to that there would be more than "
            f"{settings.max_pixels} pixels; cut it into pieces"
        )
    left, top = (width - image.width) // 2, (height - image.height) // 2
    border = (left, top, width - image.width - left, height - image.height - top)
    changes.append(
        f"padded from {_pixels(image.size)} to {_pixels((width, height))} pixels with {settings.background}"
    )
    return ImageOps.expand(image, border, fill=ImageColor.getrgb(settings.background))


def _pixels(size: tuple[int, int]) -> str:
    return f"{size[0]} × {size[1]}"
