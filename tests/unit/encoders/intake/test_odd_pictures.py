"""Every odd picture through the intake: the right pixels the right way up, or one clear sentence."""

from pathlib import Path

import numpy as np
import pytest

from mmspec.encoders.intake import PictureRefused
from mmspec.encoders.intake.picture import take_in
from tests.odd_pictures import SETTINGS, OddPicture, as_markdown, odd_pictures

PICTURES = odd_pictures()
TAKEN = [odd for odd in PICTURES if odd.expected is not None]
REFUSED = [odd for odd in PICTURES if odd.expected is None]


def test_there_are_many_and_each_has_its_name() -> None:
    assert len(TAKEN) >= 40
    assert len(REFUSED) >= 20
    assert len({odd.name for odd in PICTURES}) == len(PICTURES)


@pytest.mark.parametrize("odd", TAKEN, ids=str)
def test_a_picture_comes_out_as_it_is_meant(odd: OddPicture) -> None:
    taken = take_in(odd.data, SETTINGS)

    pixels = np.asarray(taken.image)
    assert odd.expected is not None
    assert (taken.image.mode, pixels.shape) == ("RGB", odd.expected.shape)
    assert np.abs(pixels.astype(int) - odd.expected.astype(int)).max() <= odd.tolerance


@pytest.mark.parametrize("odd", TAKEN, ids=str)
def test_what_was_changed_is_said_and_nothing_else(odd: OddPicture) -> None:
    changes = take_in(odd.data, SETTINGS).changes

    assert len(changes) == len(odd.noted)
    assert all(noted in change for noted, change in zip(odd.noted, changes, strict=True))


@pytest.mark.parametrize("odd", REFUSED, ids=str)
def test_what_cannot_be_taken_is_refused_with_one_sentence(odd: OddPicture) -> None:
    with pytest.raises(PictureRefused) as caught:
        take_in(odd.data, SETTINGS)

    sentence = str(caught.value)
    assert odd.refused in sentence
    assert "; " in sentence  # what is wrong; what would do
    assert "\n" not in sentence
    assert len(sentence) < 260


@pytest.mark.parametrize("odd", TAKEN, ids=str)
def test_a_picture_that_was_taken_in_is_taken_in_unchanged(odd: OddPicture) -> None:
    from mmspec.encoders.intake.picture import take_in_image

    once = take_in(odd.data, SETTINGS).image

    assert take_in_image(once, SETTINGS).image is once


@pytest.mark.parametrize("cut", [0.1, 0.3, 0.7, 0.9])
@pytest.mark.parametrize("odd", TAKEN, ids=str)
def test_a_file_cut_anywhere_is_a_picture_or_refused(odd: OddPicture, cut: float) -> None:
    """No other exception, whatever Pillow's decoders make of it."""
    try:
        taken = take_in(odd.data[: int(cut * len(odd.data))], SETTINGS)
    except PictureRefused:
        return
    # A few formats end without saying so; then at least the shape is right.
    assert odd.expected is not None
    assert np.asarray(taken.image).shape == odd.expected.shape


def test_the_page_about_them_is_up_to_date() -> None:
    """`python -m tests.odd_pictures` prints the table."""
    page = Path(__file__).parents[4] / "docs" / "intake.md"

    assert as_markdown() in page.read_text()
