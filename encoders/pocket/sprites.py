"""The sprite sheet: one 96 x 96 picture a kind, drawn once from Noto Color Emoji."""

from functools import cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from mmspec.encoders.pocket.kinds import KINDS

SHEET = Path(__file__).with_name("sprites.png")
SPRITE_SIZE = 96
_COLUMNS = 10
_FONT_BITMAP_SIZE = 109  # the only size that the colour font carries


@cache
def sprites() -> tuple[Image.Image, ...]:
    """One RGBA picture of 96 x 96 pixels a kind, in the order of `KINDS`."""
    sheet = Image.open(SHEET).convert("RGBA")
    return tuple(sheet.crop(_box(index)) for index in range(len(KINDS)))


def draw_sheet(font_path: Path, target: Path = SHEET) -> None:
    """Draws the sheet anew from a Noto Color Emoji font file."""
    rows = -(-len(KINDS) // _COLUMNS)
    sheet = Image.new("RGBA", (_COLUMNS * SPRITE_SIZE, rows * SPRITE_SIZE))
    font = ImageFont.truetype(str(font_path), _FONT_BITMAP_SIZE)
    for index, kind in enumerate(KINDS):
        sheet.paste(_draw_emoji(chr(kind.codepoint), font), _box(index))
    sheet.quantize(256, method=Image.Quantize.FASTOCTREE).save(target, optimize=True)


def _draw_emoji(character: str, font: ImageFont.FreeTypeFont) -> Image.Image:
    canvas = Image.new("RGBA", (160, 160))
    ImageDraw.Draw(canvas).text((8, 8), character, font=font, embedded_color=True)
    emoji = canvas.crop(canvas.getbbox())
    side = max(emoji.size)
    square = Image.new("RGBA", (side, side))
    square.paste(emoji, ((side - emoji.width) // 2, (side - emoji.height) // 2))
    return square.resize((SPRITE_SIZE, SPRITE_SIZE), Image.Resampling.LANCZOS)


def _box(index: int) -> tuple[int, int, int, int]:
    left, top = index % _COLUMNS * SPRITE_SIZE, index // _COLUMNS * SPRITE_SIZE
    return left, top, left + SPRITE_SIZE, top + SPRITE_SIZE
