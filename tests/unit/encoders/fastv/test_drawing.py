"""Pictures with dropped patches dimmed."""

import pytest
from PIL import Image

from mmspec.encoders.fastv.drawing import centre_square, draw_kept, grid


@pytest.mark.parametrize(
    ("tokens", "size", "expected"),
    [
        (12, (112, 84), (4, 3)),
        (12, (84, 112), (3, 4)),
        (49, (400, 400), (7, 7)),
        (1000, (1120, 700), (40, 25)),
        (7, (700, 100), (7, 1)),
        (576, (336, 336), (24, 24)),
    ],
)
def test_the_grid_is_that_of_the_pictures_shape(
    tokens: int, size: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert grid(tokens, size) == expected


def test_kept_patches_are_bright_and_dropped_ones_dark() -> None:
    flags = [True, False, False, True, False, True]
    drawing = draw_kept([Image.new("RGB", (300, 200), (200, 100, 40))], [flags])

    width, height = drawing.width // 3, drawing.height // 2
    centres = [((i % 3) * width + width // 2, (i // 3) * height + height // 2) for i in range(6)]
    expected = [(200, 100, 40) if flag else (50, 25, 10) for flag in flags]
    assert [drawing.getpixel(centre) for centre in centres] == expected


def test_pictures_stand_side_by_side() -> None:
    drawing = draw_kept(
        [Image.new("RGB", (400, 400)), Image.new("RGB", (800, 400))], [[True] * 4, [True] * 8]
    )

    assert (drawing.width, drawing.height) == (400 + 8 + 800, 400)


def test_the_centre_is_what_a_cropping_processor_sees() -> None:
    picture = Image.new("RGB", (60, 20), "red")
    picture.paste("blue", (20, 0, 40, 20))

    assert centre_square(picture).getcolors() == [(400, (0, 0, 255))]
