"""Which files are opened, and what the others look like."""

from functools import cache

# Formats with a signature that nothing else begins with, whose header holds the size of what will be decoded. So
# no TGA (it has no signature) and no ICO (it may hold a picture far larger than it says).
_FORMATS = (
    *("PNG", "JPEG", "MPO", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000", "PPM", "QOI", "PSD", "DDS"),
    "HEIF",  # there where pillow-heif has been registered
)
COMMON = "PNG, JPEG, WebP, GIF, BMP, TIFF or AVIF"

_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1")
_STARTS = (
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive or an office document"),
    (b"\x00\x00\x01\x00", "an ICO icon"),
    (b"\x1aE\xdf\xa3", "a video"),
)


@cache
def readable() -> tuple[str, ...]:
    """Pillow's names of the formats that are opened, as far as Pillow can read them here."""
    from PIL import Image

    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def describe(data: bytes) -> str | None:
    """What a file is that is not opened, told by its content; None when that is not known."""
    for start, name in _STARTS:
        if data.startswith(start):
            return name
    if data[4:8] == b"ftyp":
        return "a HEIC picture" if data[8:12] in _HEIC_BRANDS else "a video"
    text = data[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if b"<svg" in text and text.startswith((b"<svg", b"<?xml", b"<!--", b"<!doctype svg")):
        return "an SVG drawing"
    if text.startswith((b"<!doctype html", b"<html")):
        return "a web page"
    return None
