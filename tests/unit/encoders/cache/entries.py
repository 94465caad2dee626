"""Entries whose content follows from their number, so that a wrong one is known when it is seen. Free of torch."""

import random
from functools import cache

from mmspec.encoders.cache import Encoder, Entry, FeatureKey, Keys

WIDTH = 8
_KEYS = Keys(Encoder("weights", "bfloat16", WIDTH, {"patch_size": 14}, "a model"), "a tenant")


@cache
def key(number: int) -> FeatureKey:
    return _KEYS.of_content(f"picture {number}")


@cache
def entry(number: int, rows: int | None = None) -> Entry:
    """A picture's features: 1 to 2,000 rows of eight bfloat16 numbers, unless said otherwise."""
    draw = random.Random(number)
    rows = rows or draw.randint(1, 2000)
    return Entry("BF16", (rows, WIDTH), memoryview(draw.randbytes(2 * rows * WIDTH)))


def is_right(number: int, found: Entry | None, rows: int | None = None) -> bool:
    return found == entry(number, rows)
