"""Pictures as people really send them, with what should come out: pixels, or a refusal.

Most are the same test card, whose four colours tell every orientation apart. What should come out is made with
numpy from the card, not with the code under test.
"""

import io
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms, features

from mmspec.encoders.intake import IntakeSettings

Pixels = NDArray[np.uint8]  # [height, width, 3]

# Small limits, so that what is above them is quick to make.
SETTINGS = IntakeSettings(max_bytes=400_000, max_pixels=3_000_000)

WIDTH, HEIGHT = 64, 48
RED, GREEN, BLUE, YELLOW = (220, 30, 40), (30, 160, 60), (40, 60, 200), (240, 220, 60)
WHITE = (255, 255, 255)
ORIENTATION = 0x0112
_ORIENTED = {
    2: lambda card: card[:, ::-1],
    3: lambda card: card[::-1, ::-1],
    4: lambda card: card[::-1],
    5: lambda card: card.transpose(1, 0, 2),
    6: lambda card: np.rot90(card, -1),
    7: lambda card: np.rot90(card, 2).transpose(1, 0, 2),
    8: lambda card: np.rot90(card, 1),
}


@dataclass(frozen=True)
class OddPicture:
    """A file and what should come out.

    Attributes:
        expected: the pixels; None for a picture that must be refused.
        tolerance: the most that a channel may be off, for lossy formats.
        refused: a part of the refusal.
        noted: a part of each note about it, in order.
    """

    name: str
    data: bytes = field(repr=False)
    expected: Pixels | None = field(default=None, repr=False)
    tolerance: int = 0
    refused: str = ""
    noted: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


def odd_pictures() -> list[OddPicture]:
    """All of them; the names are unique."""
    return [
        *_formats(),
        *_oriented(),
        *_transparent(),
        *_deep(),
        *_colour_models(),
        *_animated(),
        *_shapes(),
        *_broken(),
        *_no_pictures(),
        *_too_large(),
    ]


def as_markdown() -> str:
    """What becomes of each, and what each door shows of that, as a table for the documentation.

    The doors' columns follow from the second one; that every door keeps to that is what tests/serve looks at.
    """
    from mmspec.encoders.intake import PictureRefused
    from mmspec.encoders.intake.picture import take_in

    rows = [
        "| picture | what becomes of it | `LLM.chat` | HTTP | `mmspec chat` |",
        "| --- | --- | --- | --- | --- |",
    ]
    for odd in odd_pictures():
        try:
            outcome = "; ".join(["taken", *take_in(odd.data, SETTINGS).changes])
            doors = ("right pixels", "right answer", "right pixels")
        except PictureRefused as refusal:
            outcome, doors = f"refused: {refusal}", ("`MmspecError`", "400", "one line, exit 2")
        rows.append(f"| {' | '.join((odd.name, outcome, *doors))} |")
    return "\n".join(rows)


def card(width: int = WIDTH, height: int = HEIGHT) -> Pixels:
    """Red and green above blue and yellow."""
    pixels = np.empty((height, width, 3), np.uint8)
    pixels[: height // 2, : width // 2], pixels[: height // 2, width // 2 :] = RED, GREEN
    pixels[height // 2 :, : width // 2], pixels[height // 2 :, width // 2 :] = BLUE, YELLOW
    return pixels


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def png(
    width: int, height: int, depth: int, colour: int, rows: list[bytes], *chunks: tuple[bytes, bytes]
) -> bytes:
    """A PNG file of kinds that Pillow does not write; `rows` without filter bytes."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    parts = [(b"IHDR", header), *chunks, (b"IDAT", data), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def padded(pixels: Pixels, width: int, height: int) -> Pixels:
    """In the middle of white; half a pixel too far up and left where it cannot be in the middle."""
    whole = np.full((height, width, 3), 255, np.uint8)
    top, left = (height - pixels.shape[0]) // 2, (width - pixels.shape[1]) // 2
    whole[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
    return whole


def _formats() -> Iterator[OddPicture]:
    image = Image.fromarray(card())
    for kind in ("PNG", "BMP", "TIFF", "PPM", "GIF", "QOI"):
        yield OddPicture(kind.lower(), saved(image, kind), card())
    yield OddPicture("webp", saved(image, "WEBP", lossless=True), card())
    yield OddPicture("jpeg 2000", saved(image, "JPEG2000"), card())
    yield OddPicture(
        "progressive jpeg", saved(image, "JPEG", quality=98, progressive=True, subsampling=0), card(), 8
    )
    yield OddPicture("tiff with lzw", saved(image, "TIFF", compression="tiff_lzw"), card())
    behind = b"\0\0\0\x18ftypmp42" * 50
    jpeg = saved(image, "JPEG", quality=98, subsampling=0)
    yield OddPicture("jpeg with a video behind it, as phones write", jpeg + behind, card(), 8)
    yield OddPicture("png with bytes behind its end", saved(image, "PNG") + behind, card())
    if features.check("avif"):
        yield OddPicture("avif", saved(image, "AVIF", quality=98, subsampling="4:4:4"), card(), 12)


def _oriented() -> Iterator[OddPicture]:
    image = Image.fromarray(card())
    for orientation, turned in _ORIENTED.items():
        note = (f"EXIF orientation {orientation}",)
        yield OddPicture(
            f"jpeg, orientation {orientation}", _jpeg(orientation), turned(card()), 8, noted=note
        )
    turned_six, note = _ORIENTED[6](card()), ("EXIF orientation 6",)
    for kind, options in (("PNG", {}), ("WEBP", {"lossless": True})):
        data = saved(image, kind, exif=_exif(6), **options)
        yield OddPicture(f"{kind.lower()}, orientation 6", data, turned_six, noted=note)
    data = saved(image, "TIFF", tiffinfo={ORIENTATION: 6})
    yield OddPicture("tiff, orientation 6", data, turned_six, noted=note)
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><r:RDF xmlns:r="r" xmlns:tiff="t"><r:D tiff:Orientation="6"/></r:RDF>'
    data = saved(image, "JPEG", quality=98, subsampling=0, xmp=xmp + b"</x:xmpmeta>")
    yield OddPicture("jpeg, orientation 6 in its XMP", data, turned_six, 8, noted=note)
    yield OddPicture("jpeg, orientation 9, which there is not", _jpeg(9), card(), 8)
    data = saved(image, "JPEG", quality=98, subsampling=0, exif=b"Exif\0\0MM\0\x2a\xff\xff\xff\xff garbage")
    yield OddPicture("jpeg with broken EXIF", data, card(), 8)


def _transparent() -> Iterator[OddPicture]:
    left_white = card()
    left_white[:, : WIDTH // 2] = WHITE
    alpha = np.zeros((HEIGHT, WIDTH), np.uint8)
    alpha[:, WIDTH // 2 :] = 255
    note = ("transparent places filled with white",)
    rgba = Image.fromarray(np.dstack([card(), alpha]))
    yield OddPicture("rgba png, left half transparent", saved(rgba, "PNG"), left_white, noted=note)
    yield OddPicture("rgba webp", saved(rgba, "WEBP", lossless=True), left_white, noted=note)
    yield OddPicture("rgba tiff", saved(rgba, "TIFF"), left_white, noted=note)
    opaque = Image.fromarray(np.dstack([card(), np.full_like(alpha, 255)]))
    yield OddPicture("rgba png, opaque", saved(opaque, "PNG"), card())
    half = Image.fromarray(np.dstack([np.zeros_like(card()), np.full_like(alpha, 128)]))
    grey = np.full_like(card(), 127)
    yield OddPicture("black rgba png, half transparent", saved(half, "PNG"), grey, 1, noted=note)
    grey_alpha = Image.merge("LA", (Image.new("L", (WIDTH, HEIGHT), 80), Image.fromarray(alpha)))
    grey_left_white = np.where(alpha[..., None] == 0, 255, 80).repeat(3, 2).astype(np.uint8)
    yield OddPicture("la png", saved(grey_alpha, "PNG"), grey_left_white, noted=note)
    yield from _transparent_keys(note)


def _transparent_keys(note: tuple[str, ...]) -> Iterator[OddPicture]:
    red_white = card()
    red_white[: HEIGHT // 2, : WIDTH // 2] = WHITE
    palette = Image.fromarray(card()).quantize(4)
    red = palette.getpixel((0, 0))
    yield OddPicture(
        "palette png, red transparent", saved(palette, "PNG", transparency=red), red_white, noted=note
    )
    alphas = bytes(0 if index == red else 255 for index in range(4))
    yield OddPicture("palette png, alphas", saved(palette, "PNG", transparency=alphas), red_white, noted=note)
    yield OddPicture("gif, red transparent", saved(palette, "GIF", transparency=red), red_white, noted=note)
    image = Image.fromarray(card())
    yield OddPicture("rgb png, red transparent", saved(image, "PNG", transparency=RED), red_white, noted=note)
    grey = Image.fromarray(np.where(np.arange(WIDTH) < 20, 7, 90).astype(np.uint8)[None].repeat(HEIGHT, 0))
    expected = np.where(np.arange(WIDTH)[None, :, None] < 20, 255, 90).repeat(HEIGHT, 0).repeat(3, 2)
    yield OddPicture(
        "grey png, 7 transparent", saved(grey, "PNG", transparency=7), expected.astype(np.uint8), noted=note
    )


def _deep() -> Iterator[OddPicture]:
    ramp = np.linspace(0, 65535, WIDTH).round().astype(np.uint16)[None].repeat(HEIGHT, 0)
    scaled = _grey(np.round(ramp / 257))
    note = ("16-bit grey from 0 to 65535 scaled",)
    yield OddPicture("16-bit grey png", saved(Image.fromarray(ramp), "PNG"), scaled, noted=note)
    yield OddPicture("16-bit grey tiff", saved(Image.fromarray(ramp), "TIFF"), scaled, noted=note)
    big = Image.frombytes("I;16B", (WIDTH, HEIGHT), ramp.astype(">u2").tobytes())
    yield OddPicture("16-bit grey tiff, big-endian", saved(big, "TIFF"), scaled, noted=note)
    pgm = f"P5 {WIDTH} {HEIGHT} 65535\n".encode() + ramp.astype(">u2").tobytes()
    yield OddPicture("16-bit pgm", pgm, scaled, noted=note)
    key = (b"tRNS", struct.pack(">H", int(ramp[0, 10])))
    rows = [row.astype(">u2").tobytes() for row in ramp]
    with_hole = scaled.copy()
    with_hole[:, 10] = WHITE
    hole = png(WIDTH, HEIGHT, 16, 0, rows, key)
    yield OddPicture(
        "16-bit grey png, a value transparent", hole, with_hole, noted=(*note, "transparent places")
    )
    deep_rows = [(card()[row].astype(np.uint16) * 257).astype(">u2").tobytes() for row in range(HEIGHT)]
    yield OddPicture("16-bit rgb png", png(WIDTH, HEIGHT, 16, 2, deep_rows), card())
    yield from _deeper()


def _deeper() -> Iterator[OddPicture]:
    steps = np.linspace(0, 1, WIDTH, dtype=np.float32)[None].repeat(HEIGHT, 0)
    scaled = _grey(np.round(steps * 255))
    wide = Image.fromarray((steps * 2e9).astype(np.int32))
    yield OddPicture(
        "32-bit grey tiff", saved(wide, "TIFF"), scaled, 1, noted=("32-bit grey from 0 to 2e+09 scaled",)
    )
    note = "floating-point grey from {} scaled"
    unit = saved(Image.fromarray(steps), "TIFF")
    yield OddPicture("float tiff from 0 to 1", unit, scaled, noted=(note.format("0 to 1"),))
    signed = steps * 8 - 4
    signed[0, 0] = np.nan
    expected = scaled.copy()
    expected[0, 0] = 0
    data = saved(Image.fromarray(signed), "TIFF")
    yield OddPicture("float tiff from -4 to 4 with a NaN", data, expected, 1, noted=(note.format("-4 to 4"),))
    nothing = saved(Image.fromarray(np.full_like(steps, np.nan)), "TIFF")
    yield OddPicture("float tiff of NaN", nothing, refused="no finite value")
    flat = saved(Image.fromarray(np.full_like(steps, -3)), "TIFF")
    yield OddPicture("float tiff, all -3", flat, np.zeros_like(card()), noted=(note.format("-3 to -2"),))


def _colour_models() -> Iterator[OddPicture]:
    image = Image.fromarray(card())
    cmyk = image.convert("CMYK")
    note = ("CMYK colours converted",)
    yield OddPicture("cmyk tiff", saved(cmyk, "TIFF"), card(), 1, noted=note)
    yield OddPicture("cmyk jpeg", saved(cmyk, "JPEG", quality=98, subsampling=0), card(), 10, noted=note)
    profiles = (ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"))
    lab = ImageCms.profileToProfile(image, *profiles, outputMode="LAB")
    assert lab is not None
    yield OddPicture("lab tiff", saved(lab, "TIFF"), card(), 10, noted=("LAB colours converted",))
    checks = np.indices((HEIGHT, WIDTH)).sum(0) % 2 == 0
    yield OddPicture("1-bit png", saved(Image.fromarray(checks), "PNG"), _grey(checks * 255))
    grey = np.arange(HEIGHT * WIDTH).reshape(HEIGHT, WIDTH) % 256
    yield OddPicture("grey png", saved(Image.fromarray(grey.astype(np.uint8)), "PNG"), _grey(grey))
    palette = saved(image.quantize(4), "PNG", bits=2)
    yield OddPicture("palette png of 2 bits", palette, card())


def _animated() -> Iterator[OddPicture]:
    first, second = Image.fromarray(card()), Image.fromarray(card()[::-1].copy())
    note = ("first frame taken of several",)
    more: dict[str, Any] = {"save_all": True, "append_images": [second, first]}
    yield OddPicture("animated gif", saved(first, "GIF", duration=50, **more), card(), noted=note)
    yield OddPicture("animated webp", saved(first, "WEBP", lossless=True, **more), card(), noted=note)
    yield OddPicture("animated png", saved(first, "PNG", **more), card(), noted=note)
    yield OddPicture("tiff of three pages", saved(first, "TIFF", **more), card(), noted=note)
    mpo = saved(first, "MPO", quality=98, subsampling=0, **more)
    yield OddPicture("mpo, as some cameras write", mpo, card(), 8, noted=note)


def _shapes() -> Iterator[OddPicture]:
    dot = np.array([[RED]], np.uint8)
    yield OddPicture(
        "1 x 1", _png(dot), dot.repeat(28, 0).repeat(28, 1), noted=("enlarged from 1 × 1 to 28 × 28",)
    )
    small = card(14, 14)
    big = card(28, 28)
    yield OddPicture("14 x 14", _png(small), big, 90, noted=("enlarged from 14 × 14 to 28 × 28",))
    for width, height in ((1, 499), (499, 1), (26, 28), (28, 3), (1000, 20)):
        to = (max(width, 28), max(height, 28))
        note = (f"padded from {width} × {height} to {to[0]} × {to[1]} pixels with white",)
        yield OddPicture(
            f"{width} x {height}", _png(card(width, height)), padded(card(width, height), *to), noted=note
        )
    for width, height, to_height in ((5000, 40, 100), (4000, 10, 80)):
        note = (f"padded from {width} × {height} to {width} × {to_height} pixels with white",)
        pixels = padded(card(width, height), width, to_height)
        yield OddPicture(f"{width} x {height}", _png(card(width, height)), pixels, noted=note)
    yield OddPicture(
        "3 x 6",
        _png(card(3, 6)[:, :, ::-1] * 0),
        padded(card(14, 28) * 0, 28, 28),
        noted=("enlarged", "padded"),
    )
    yield OddPicture("1300 x 28", _png(card(1300, 28)), card(1300, 28))
    yield OddPicture("30 x 150", _png(card(30, 150)), card(30, 150))


def _broken() -> Iterator[OddPicture]:
    noise = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    image = Image.fromarray(noise)
    for kind in ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "JPEG2000"):
        data = saved(image, kind)
        yield OddPicture(f"half a {kind.lower()}", data[: len(data) // 2], refused="broken")
    whole = _png(noise)
    yield OddPicture("png, its signature only", whole[:8], refused="not a picture")
    yield OddPicture(
        "png with a wrong checksum", whole[:60] + bytes([whole[60] ^ 255]) + whole[61:], refused="broken"
    )
    yield OddPicture("png of no width", png(0, 5, 8, 2, [b""] * 5), refused="not a picture")
    text = (b"zTXt", b"Comment\0\0" + zlib.compress(bytes(80_000_000)))
    row = card()[0].tobytes()
    yield OddPicture("png with a bomb in its text", png(WIDTH, 1, 8, 2, [row], text), refused="broken")


def _no_pictures() -> Iterator[OddPicture]:
    yield OddPicture("empty file", b"", refused="the file is empty")
    yield OddPicture("text", b"just some text, and not a picture", refused="not a picture; give a PNG")
    for name, data, kind in (
        ("pdf", b"%PDF-1.7\n%\xe2\xe3", "a PDF document"),
        ("zip", b"PK\x03\x04" + bytes(30), "a ZIP archive"),
        ("svg", b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>', "an SVG drawing"),
        ("web page", b"<!DOCTYPE html><html><body>404</body></html>", "a web page"),
        ("heic", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "a HEIC picture"),
        ("mp4", b"\0\0\0\x18ftypisom\0\0\2\0isomiso2", "a video"),
        ("ico", saved(Image.fromarray(card()), "ICO"), "an ICO icon"),
    ):
        yield OddPicture(name, data, refused=f"not a picture that can be read, but {kind}")
    yield OddPicture(
        "tga, which has no signature", saved(Image.fromarray(card()), "TGA"), refused="not a picture"
    )
    yield OddPicture("random bytes", np.random.default_rng(1).bytes(5000), refused="not a picture")
    yield OddPicture(
        "postscript", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", refused="not a picture"
    )


def _too_large() -> Iterator[OddPicture]:
    bomb = png(30_000, 30_000, 1, 0, [bytes(3750)])
    yield OddPicture("png bomb", bomb, refused="more than 3000000 pixels; scale it down")
    plain = png(2000, 2000, 1, 0, [bytes(250)] * 2000)
    yield OddPicture(
        "png of 4 million pixels", plain, refused="2000 × 2000 pixels are more than 3000000 pixels"
    )
    screen = b"GIF89a\xff\xff\xff\xff\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;"
    yield OddPicture("gif bomb", screen, refused="more than 3000000 pixels")
    yield OddPicture("a file of 500 kB", bytes(500_000), refused="500000 bytes are more than 400000")
    line = png(200_000, 1, 1, 0, [bytes(25_000)])
    yield OddPicture("200000 x 1", line, refused="sides may differ by a factor of 50")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _exif(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return exif


def _jpeg(orientation: int) -> bytes:
    return saved(Image.fromarray(card()), "JPEG", quality=98, subsampling=0, exif=_exif(orientation))


def _png(pixels: Pixels) -> bytes:
    return saved(Image.fromarray(np.ascontiguousarray(pixels)), "PNG")


def _grey(values: Any) -> Pixels:
    return np.asarray(values, np.uint8)[..., None].repeat(3, 2)


if __name__ == "__main__":
    print(as_markdown())
