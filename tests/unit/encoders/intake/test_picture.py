"""Pictures in memory, colours of the background, shapes, and files that do not hold what they say."""

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from mmspec.encoders.intake import IntakeSettings, PictureRefused
from mmspec.encoders.intake.picture import take_in, take_in_image
from mmspec.encoders.intake.settings import MIN_SIDE, engine_settings
from tests.odd_pictures import ORIENTATION, card, saved

MODES = [
    "1",
    "L",
    "LA",
    "La",
    "P",
    "PA",
    "RGBA",
    "RGBa",
    "RGBX",
    "CMYK",
    "YCbCr",
    "HSV",
    "I",
    "F",
    "I;16",
    "I;16B",
]


def test_an_ordinary_picture_in_memory_stays_the_same_object() -> None:
    picture = Image.fromarray(card())

    taken = take_in_image(picture)

    assert taken.image is picture
    assert taken.changes == []


def test_a_picture_in_memory_is_turned_and_stays_what_it_was() -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    opened = Image.open(io.BytesIO(saved(Image.fromarray(card()), "PNG", exif=exif)))

    taken = take_in_image(opened)

    assert np.array_equal(np.asarray(taken.image), np.rot90(card(), -1))
    assert np.array_equal(np.asarray(opened), card())
    assert opened.getexif()[ORIENTATION] == 6


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_of_pillow_is_taken(mode: str) -> None:
    taken = take_in_image(Image.new(mode, (40, 30)))

    assert (taken.image.mode, taken.image.size) == ("RGB", (40, 30))


def test_a_frame_that_was_chosen_stays_chosen() -> None:
    frames = [Image.new("RGB", (40, 30), colour) for colour in ("red", "lime")]
    opened = Image.open(io.BytesIO(saved(frames[0], "PNG", save_all=True, append_images=frames[1:])))
    opened.seek(1)

    taken = take_in_image(opened)

    assert taken.image.getpixel((0, 0)) == (0, 255, 0)
    assert taken.changes == []


def test_a_picture_whose_file_turns_out_broken_is_refused() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    data = saved(Image.fromarray(noise), "PNG")

    with pytest.raises(PictureRefused, match="broken"):
        take_in_image(Image.open(io.BytesIO(data[: len(data) // 2])))


@pytest.mark.parametrize(("background", "colour"), [("black", (0, 0, 0)), ("#ff8000", (255, 128, 0))])
def test_the_background_can_be_chosen(background: str, colour: tuple[int, int, int]) -> None:
    chosen = IntakeSettings(background=background)

    clear = take_in(saved(Image.new("RGBA", (40, 30)), "PNG"), chosen)
    thin = take_in(saved(Image.new("RGB", (40, 2), "white"), "PNG"), chosen)

    assert clear.image.getpixel((5, 5)) == colour
    assert clear.changes == [f"transparent places filled with {background}"]
    assert thin.image.getpixel((0, 0)) == colour


@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(1, 3000),
    height=st.integers(1, 3000),
    ratio=st.floats(2, 200),
    swap=st.booleans(),
    thin=st.booleans(),
)
def test_every_shape_fits_and_holds_the_whole_picture(
    width: int, height: int, ratio: float, swap: bool, thin: bool
) -> None:
    height = min(height, 20) if thin else height
    size = (height, width) if swap else (width, height)
    picture = Image.new("RGB", size, "red")

    image = take_in_image(picture, IntakeSettings(max_aspect_ratio=ratio, max_pixels=100_000_000)).image

    assert min(image.size) >= MIN_SIDE
    assert max(image.size) <= ratio * min(image.size) + 1e-6
    red = np.all(np.asarray(image) == (255, 0, 0), axis=-1)
    rows, columns = red.any(1).sum(), red.any(0).sum()
    assert red.sum() == rows * columns  # one rectangle
    if max(size) >= MIN_SIDE:
        assert (columns, rows) == size
    else:  # enlarged, and its shape kept to a pixel
        assert max(columns, rows) == MIN_SIDE
        assert abs(rows * size[0] / max(size) - columns * size[1] / max(size)) <= 1


def test_pixels_are_counted_before_anything_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(self: object) -> None:
        raise AssertionError("decoded")

    data = saved(Image.new("RGB", (200, 200)), "PNG")
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", decode)

    with pytest.raises(PictureRefused, match="200 × 200 pixels are more than 1000 pixels"):
        take_in(data, IntakeSettings(max_pixels=1000))


def test_bytes_are_counted_before_anything_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_it(*args: object, **kwargs: object) -> None:
        raise AssertionError("opened")

    monkeypatch.setattr("PIL.Image.open", open_it)

    with pytest.raises(PictureRefused, match="11 bytes are more than 10"):
        take_in(bytes(11), IntakeSettings(max_bytes=10))


@pytest.mark.parametrize(
    ("additional", "expected"),
    [
        ({}, None),
        (None, None),
        ({"mmspec": {}}, None),
        ({"mmspec": {"intake": None}}, None),
        ({"mmspec": {"intake": {}}}, IntakeSettings()),
        ({"mmspec": {"intake": {"background": "black"}}}, IntakeSettings(background="black")),
    ],
)
def test_an_engine_without_the_option_has_no_intake(
    additional: object, expected: IntakeSettings | None
) -> None:
    assert engine_settings(additional) == expected


def test_the_key_of_a_changed_picture_follows_what_changes_its_pixels() -> None:
    keys = [
        IntakeSettings(),
        IntakeSettings(background="black"),
        IntakeSettings(max_aspect_ratio=20),
    ]

    assert len({str(one.identity) for one in keys}) == len(keys)
    assert IntakeSettings(max_bytes=5).identity == IntakeSettings().identity


def test_the_configuration_and_the_intake_have_the_same_options() -> None:
    from mmspec import IntakeConfig

    assert IntakeConfig().settings() == IntakeSettings()
    assert IntakeConfig(background="black", max_bytes=7).settings() == IntakeSettings(
        background="black", max_bytes=7
    )


def test_examples_of_the_demo_are_taken_as_they_are() -> None:
    for path in sorted((Path(__file__).parents[4] / "demo" / "examples").glob("*.png")):
        assert take_in(path.read_bytes()).changes == []
