"""The file format: a safetensors file in which no bit can change unseen."""

import dataclasses
import struct
from pathlib import Path

import pytest
from safetensors.numpy import load

from mmspec.encoders.cache.entry import ITEM_BYTES, Corrupt, Entry, decode, encode
from tests.unit.encoders.cache import entries

KEY, ENTRY = entries.key(1), entries.entry(1, rows=2)


def content() -> bytearray:
    return bytearray(encode(KEY, ENTRY) + ENTRY.data)


def test_it_comes_back_as_it_was() -> None:
    assert decode(memoryview(content()), KEY.name) == ENTRY


@pytest.mark.parametrize("dtype", ITEM_BYTES)
@pytest.mark.parametrize("shape", [(3, 2), (0, 2), (), (2, 1, 3)], ids=str)
def test_every_dtype_and_shape(dtype: str, shape: tuple[int, ...]) -> None:
    count = 1
    for size in shape:
        count *= size
    entry = Entry(dtype, shape, memoryview(bytes(range(count * ITEM_BYTES[dtype]))))

    assert decode(memoryview(encode(KEY, entry) + entry.data), KEY.name) == entry


def test_safetensors_reads_it() -> None:
    entry = Entry("F32", (2, 2), memoryview(struct.pack("<4f", 1, 2, 3, 4)))

    found = load(encode(KEY, entry) + bytes(entry.data))

    assert found["features"].tolist() == [[1, 2], [3, 4]]


def test_the_data_are_aligned() -> None:
    assert len(encode(KEY, ENTRY)) % 64 == 0


def test_a_flipped_bit_anywhere_is_seen() -> None:
    whole = content()
    for bit in range(8 * len(whole)):
        whole[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt):
            decode(memoryview(whole), KEY.name)
        whole[bit // 8] ^= 1 << bit % 8
    assert decode(memoryview(whole), KEY.name) == ENTRY


def test_a_cut_or_a_longer_file_is_seen() -> None:
    whole = memoryview(content())
    for length in range(len(whole)):
        with pytest.raises(Corrupt):
            decode(whole[:length], KEY.name)
    with pytest.raises(Corrupt):
        decode(memoryview(bytes(whole) + b"\0"), KEY.name)


def test_the_entry_of_another_key_is_seen() -> None:
    with pytest.raises(Corrupt, match="another key"):
        decode(memoryview(content()), entries.key(2).name)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"features": 1, "__metadata__": 2}',
        b"[" * 4000,
        b"\xff" * 100,
        encode(KEY, ENTRY)[8:].replace(b'"xxh3_128": "', b'"xxh3_128": 0, "other": "'),
        encode(KEY, ENTRY)[8:].replace(b'"xxh3_128": "', b'"xxh3_128": "\\ud800'),
        encode(KEY, ENTRY)[8:].replace(b"[2, 8]", b"[-2, -8]"),
        encode(KEY, ENTRY)[8:].replace(b"[2, 8]", b"[9999999999999999999999, 8]"),
    ],
    ids=lambda header: repr(header[:20]),
)
def test_other_headers_are_refused(header: bytes) -> None:
    with pytest.raises(Corrupt):
        decode(memoryview(len(header).to_bytes(8, "little") + header), KEY.name)


def test_another_layout_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    old = content()
    monkeypatch.setattr("mmspec.encoders.cache.entry.LAYOUT", 2)

    with pytest.raises(Corrupt, match="another layout"):
        decode(memoryview(old), KEY.name)


def test_a_header_is_small_whatever_the_model_is_called() -> None:
    key = dataclasses.replace(KEY, model="\U0001f600" * 200)

    assert decode(memoryview(encode(key, ENTRY) + ENTRY.data), KEY.name) == ENTRY
    assert len(encode(key, ENTRY)) <= 4096


def test_data_that_do_not_fit_the_shape_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="4 bytes are not BF16"):
        Entry("BF16", (3,), memoryview(bytes(4)))
