"""Keys: everything that features depend on, and file names that are safe."""

import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from mmspec.encoders.cache import Encoder, Keys, array_hash, namespace_digest, picture_hash, pixels_hash
from mmspec.errors import MmspecError

BASE: dict[str, Any] = {"weights": "w", "dtype": "bfloat16", "width": 4, "processor": {"max_pixels": 100}}
OTHERS = [
    {"weights": "v"},
    {"dtype": "float32"},
    {"width": 5},
    {"processor": {"max_pixels": 101}},
    {"processor": {"max_pixels": 100, "merge_size": 2}},
    {"processor": {"max_pixels": "100"}},
]
NASTY = [
    "../../etc/passwd",
    "/etc/passwd",
    "a\0b",
    "x" * 10_000,
    "",
    ".",
    "..",
    "a\nb",
    "\ud800",
    "ä/ö",
    "con",
    "-rf",
]


def keys(namespace: str = "", *, trust_ids: bool = False, **changed: Any) -> Keys:
    return Keys(Encoder(**{**BASE, **changed}), namespace, trust_ids=trust_ids)


@pytest.mark.parametrize("changed", OTHERS, ids=str)
def test_another_encoder_never_hits(changed: dict[str, Any]) -> None:
    assert keys(**changed).of_content("c").name != keys().of_content("c").name


def test_the_models_name_is_for_people_only() -> None:
    assert keys(model="a").of_content("c").name == keys(model="b").of_content("c").name


def test_settings_of_a_request_go_over_those_of_the_encoder() -> None:
    changed = keys().of_content("c", {"max_pixels": 50})

    assert changed.name != keys().of_content("c").name
    assert changed.name == keys(processor={"max_pixels": 50}).of_content("c").name


def test_the_order_of_settings_does_not_matter() -> None:
    first, second = keys(processor={"a": 1, "b": 2}), keys(processor={"b": 2, "a": 1})

    assert first.of_content("c").name == second.of_content("c").name


@pytest.mark.parametrize("value", [object(), float("nan"), b"bytes"], ids=["object", "nan", "bytes"])
def test_settings_that_have_no_one_way_to_be_written_are_refused(value: Any) -> None:
    with pytest.raises(MmspecError, match="processor settings must be"):
        keys(processor={"a": value}).of_content("c")


def test_tenants_do_not_share_a_picture() -> None:
    one, other = keys("one").of_content("c"), keys("other").of_content("c")

    assert one.name != other.name
    assert (one.namespace, other.namespace) == (namespace_digest("one"), namespace_digest("other"))
    assert one.encoder == other.encoder


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), unique=True, min_size=2, max_size=2))
def test_no_two_pairs_of_namespace_and_id_read_the_same(pairs: list[tuple[str, str]]) -> None:
    names = {keys(namespace).of_id(user_id).name for namespace, user_id in pairs}

    assert len(names) == 2


def test_an_id_is_never_the_hash_of_a_picture() -> None:
    content = pixels_hash(b"123", (1, 1, 3), "RGB")

    assert keys(trust_ids=True).of_id(content).name != keys().of_content(content).name


def test_ids_are_kept_out_of_persistent_tiers_unless_trusted() -> None:
    assert not keys().of_id("page-1").persistable
    assert keys(trust_ids=True).of_id("page-1").persistable
    assert keys().of_content("c").persistable


@pytest.mark.parametrize("user_id", NASTY, ids=lambda user_id: ascii(user_id)[:20])
def test_names_are_safe_as_file_names(user_id: str, tmp_path: Path) -> None:
    for key in (keys().of_id(user_id), keys(user_id).of_content(user_id), keys(weights=user_id).of_id("")):
        assert re.fullmatch("[0-9a-f]{64}", key.name)
        assert re.fullmatch("[0-9a-f]{16}", key.namespace) and re.fullmatch("[0-9a-f]{16}", key.encoder)


def test_a_models_name_cannot_write_to_the_terminal_or_fill_the_header() -> None:
    key = keys(model="a\x1b[2J\nmodel" + "x" * 5000).of_content("c")

    assert key.model.isprintable() and len(key.model) <= 200


def test_the_same_bytes_in_another_shape_are_another_picture() -> None:
    pixels = bytes(30 * 150 * 3)

    assert pixels_hash(pixels, (30, 150), "RGB") != pixels_hash(pixels, (150, 30), "RGB")
    wide, high = (Image.frombytes("RGB", size, pixels) for size in ((30, 150), (150, 30)))
    assert picture_hash(wide) != picture_hash(high)
    assert array_hash(np.zeros((30, 150))) != array_hash(np.zeros((150, 30)))


def test_the_same_bytes_in_another_mode_are_another_picture() -> None:
    pixels = bytes(range(16))
    pictures = [
        Image.frombytes("RGBA", (2, 2), pixels),
        Image.frombytes("CMYK", (2, 2), pixels),
        Image.frombytes("L", (4, 4), pixels),
        Image.frombytes("I", (2, 2), pixels),
        Image.frombytes("F", (2, 2), pixels),
    ]
    assert len({picture_hash(picture) for picture in pictures}) == len(pictures)
    arrays = [np.frombuffer(pixels, dtype) for dtype in ("<f4", ">f4", "<i4", "u1")]
    assert len({array_hash(array) for array in arrays}) == len(arrays)


def test_palette_and_transparent_colour_count() -> None:
    red, blue, clear = (Image.frombytes("P", (2, 2), bytes(4)) for _ in range(3))
    red.putpalette([255, 0, 0])
    blue.putpalette([0, 0, 255])
    clear.putpalette([255, 0, 0])
    clear.info["transparency"] = 0

    assert len({picture_hash(red), picture_hash(blue), picture_hash(clear)}) == 3
    assert picture_hash(red) == picture_hash(red.copy())


def test_an_id_in_the_files_metadata_is_not_trusted() -> None:
    import uuid

    red, blue = Image.new("RGB", (2, 2), "red"), Image.new("RGB", (2, 2), "blue")
    for picture in (red, blue):
        picture.getexif()[Image.ExifTags.Base.ImageID] = uuid.UUID(int=1)

    assert picture_hash(red) != picture_hash(blue)


def test_arrays_hash_their_values_not_their_layout_in_memory() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)

    assert array_hash(array) == array_hash(np.asfortranarray(array))
    assert array_hash(array) == pixels_hash(struct.pack("<12f", *range(12)), (3, 4), "<f4")
