"""Depth, transparency and colour models: every picture becomes opaque RGB of eight bits."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor

from mmspec.encoders.intake.refusal import PictureRefused

# What stands for white in a deep picture: the first that no value is above. Others are stretched.
_WHITES = {"I": (255, 65535), "F": (1, 255, 65535)}
_SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N")
_SAID = ("CMYK", "YCbCr", "LAB", "HSV")


def to_eight_bits(image: Image.Image, changes: list[str]) -> Image.Image:
    """Scales 16-bit, 32-bit and float grey to eight bits; other pictures are returned as they are."""
    if image.mode not in (*_SIXTEEN_BITS, *_WHITES):
        return image
    values: NDArray[np.float32] = np.asarray(image).astype(np.float32)
    black, white = (0.0, 65535.0) if image.mode in _SIXTEEN_BITS else _range(values, _WHITES[image.mode])
    if not np.isfinite(values).all():
        values = np.nan_to_num(values, nan=black, posinf=white, neginf=black)
    scaled = (values - black) * np.float32(255 / (white - black))
    grey = Image.fromarray(scaled.round().clip(0, 255).astype(np.uint8))
    if white != 255:
        depth = "floating-point" if image.mode == "F" else "16-bit" if white == 65535 else "32-bit"
        changes.append(f"{depth} grey from {black:g} to {white:g} scaled to 8 bits")
    hidden = image.info.get("transparency")
    if isinstance(hidden, int):  # the grey value that stands for transparent
        grey.putalpha(Image.fromarray(np.where(values == hidden, 0, 255).astype(np.uint8)))
    return grey


def to_opaque(image: Image.Image, background: str, changes: list[str]) -> Image.Image:
    """Lays a picture with transparent places on `background`; others are returned as they are."""
    if not image.has_transparency_data:
        return image
    with_alpha = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
    if with_alpha.getchannel("A").getextrema()[0] == 255:
        return with_alpha.convert("RGB")
    canvas = Image.new("RGBA", image.size, ImageColor.getrgb(background))
    changes.append(f"transparent places filled with {background}")
    return Image.alpha_composite(canvas, with_alpha).convert("RGB")


def to_rgb(image: Image.Image, changes: list[str]) -> Image.Image:
    """Converts an opaque picture of eight bits."""
    if image.mode == "RGB":
        return image
    if image.mode in _SAID:
        changes.append(f"{image.mode} colours converted to RGB")
    return image.convert("RGB")


def _range(values: NDArray[np.float32], whites: tuple[int, ...]) -> tuple[float, float]:
    """The values that become black and white."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        raise PictureRefused("it holds no finite value; save it as 8 bits")
    low, high = float(finite.min()), float(finite.max())
    if low >= 0:
        for white in whites:
            if high <= white:
                return 0.0, float(white)
    return (low, high) if high > low else (low, low + 1.0)
