"""Scenes: one to five objects on a coloured background, drawn from a seed."""

import random
from collections import Counter
from dataclasses import dataclass

import numpy as np
from PIL import Image

from mmspec.encoders.pocket.kinds import COLOURS, KINDS, Kind
from mmspec.encoders.pocket.sprites import sprites

PICTURE_SIZE = 196  # pixels: 7 x 7 visual tokens of 28 pixels
ROWS = ("top", "middle", "bottom")
COLUMNS = ("left", "center", "right")
HELD_OUT_SEED = 1_000_000_000  # training draws its seeds below, evaluation from here on
_ZONE_CENTRES = (42, 98, 154)  # pixels: each in the middle of a visual token
_JITTER = 9  # pixels
_SIZES = (42, 58)  # pixels, smallest and largest object
_SHADE = 18  # how far a background may lie from its colour's reference, of 255
_DUSK = 0.25  # share of its brightness that a background loses from top to bottom
_WARMTH = 14  # of 255: red gained and blue lost at the left edge, and the other way round at the right
_REPEATED_KIND = 0.3  # chance that a further object is of a kind already there


@dataclass(frozen=True)
class Thing:
    """One object of a scene: its kind, its zone (row and column of three), its box in pixels."""

    kind: Kind
    row: int
    column: int
    x: int
    y: int
    size: int

    @property
    def place(self) -> str:
        return f"{ROWS[self.row]} {COLUMNS[self.column]}"


@dataclass(frozen=True)
class Scene:
    """What is in one picture, in reading order."""

    seed: int
    colour: str
    rgb: tuple[int, int, int]
    things: tuple[Thing, ...]

    @property
    def counts(self) -> Counter[Kind]:
        return Counter(thing.kind for thing in self.things)

    def draw(self, scale: int = 1) -> Image.Image:
        """An RGB picture of `PICTURE_SIZE * scale` pixels a side."""
        picture = background(self.rgb, PICTURE_SIZE * scale)
        for thing in self.things:
            paste(picture, thing.kind, thing.x * scale, thing.y * scale, thing.size * scale)
        return picture


def background(rgb: tuple[int, int, int], size: int) -> Image.Image:
    """A square of one colour in evening light: darker towards the bottom, warm on the left and cool on the right.

    Vision towers of Qwen2.5-VL know only relative positions; the light tells them where in the picture they look.
    """
    down, across = np.mgrid[0:size, 0:size] / size
    warmth = np.multiply.outer(1 - 2 * across, np.array([_WARMTH, 0, -_WARMTH]))
    shaded = np.multiply.outer(1 - _DUSK * down, np.array(rgb)) + warmth
    return Image.fromarray(shaded.clip(0, 255).astype(np.uint8))


def paste(picture: Image.Image, kind: Kind, x: int, y: int, size: int) -> None:
    """Draws an object of `size` pixels centred on (x, y)."""
    sprite = sprites()[KINDS.index(kind)].resize((size, size), Image.Resampling.BICUBIC)
    picture.paste(sprite, (x - size // 2, y - size // 2), sprite)


def shade_of(colour: str, rng: random.Random) -> tuple[int, int, int]:
    """A shade near the colour's reference."""
    red, green, blue = (min(255, max(0, c + rng.randint(-_SHADE, _SHADE))) for c in COLOURS[colour])
    return red, green, blue


def make_scene(seed: int) -> Scene:
    """The scene of a seed: always the same one."""
    rng = random.Random(seed)
    colour = rng.choice(list(COLOURS))
    rgb = shade_of(colour, rng)
    zones = sorted(rng.sample(range(9), rng.randint(1, 5)))
    kinds: list[Kind] = []
    for _ in zones:
        repeat = bool(kinds) and rng.random() < _REPEATED_KIND
        kinds.append(rng.choice(kinds if repeat else KINDS))
    rng.shuffle(kinds)
    return Scene(seed, colour, rgb, tuple(_place(k, zone, rng) for k, zone in zip(kinds, zones, strict=True)))


def _place(kind: Kind, zone: int, rng: random.Random) -> Thing:
    row, column = divmod(zone, 3)
    x = _ZONE_CENTRES[column] + rng.randint(-_JITTER, _JITTER)
    y = _ZONE_CENTRES[row] + rng.randint(-_JITTER, _JITTER)
    return Thing(kind, row, column, x, y, rng.randint(*_SIZES))
