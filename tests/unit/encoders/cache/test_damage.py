"""Files and indexes that were spoilt: a miss and a new encoding, never a wrong answer."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from mmspec.encoders.cache import FolderTier, TierUnavailable
from tests.unit.encoders.cache.entries import entry, is_right, key

NUMBERS = range(10)


def file_of(tier: FolderTier, number: int) -> Path:
    return tier.folder / "entries" / f"{key(number).name}.safetensors"


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a bit of the header": lambda path: flip(path, 100),
    "a bit of the length": lambda path: flip(path, 6),
    "the first bit of the data": lambda path: flip(path, 512),
    "the last bit": lambda path: flip(path, -1),
    "cut in the header": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "cut in the data": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "emptied": lambda path: path.write_bytes(b""),
    "one byte too many": grow,
    "another entry's": lambda path: shutil.copy(path.with_name(f"{key(2).name}.safetensors"), path),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_damaged_file_is_a_miss_and_is_made_again(
    filled: FolderTier, damage: Callable[[Path], object], restarted: bool
) -> None:
    damage(file_of(filled, 1))
    if restarted:
        filled = FolderTier(filled.folder, filled.limit)
        assert filled.totals().entries in (9, 10)

    assert filled.get(key(1)) is None
    assert not file_of(filled, 1).exists()
    assert filled.stats().corrupt == 1
    assert filled.totals().entries == 9
    assert filled.put(key(1), entry(1))
    assert all(is_right(number, filled.get(key(number))) for number in NUMBERS)
    assert filled.verify().clean


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_verify_finds_and_drops_it(filled: FolderTier, damage: Callable[[Path], object]) -> None:
    damage(file_of(filled, 1))

    findings = filled.verify()

    assert list(findings.dropped) == [key(1).name] and findings.entries == 9
    assert filled.verify().clean


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_verify_in_a_new_process_tells_what_opening_the_folder_dropped(
    damage: Callable[[Path], object], filled: FolderTier
) -> None:
    damage(file_of(filled, 1))
    filled.close()

    findings = FolderTier(filled.folder, filled.limit).verify()

    assert list(findings.dropped) == [key(1).name] and findings.entries == 9


def test_a_file_that_was_made_again_meanwhile_is_not_dropped(filled: FolderTier) -> None:
    flip(file_of(filled, 1), -1)
    damaged = file_of(filled, 1).stat().st_ino
    file_of(filled, 1).rename(filled.folder / "kept")  # so that its number is not given out again
    filled.put(key(1), entry(1))
    filled._shelf.discard(key(1).name, damaged, "a wrong checksum")

    assert is_right(1, filled.get(key(1)))
    assert filled.stats().corrupt == 0


def test_deleted_files_are_misses(filled: FolderTier) -> None:
    for number in (1, 2):
        file_of(filled, number).unlink()

    assert filled.get(key(1)) is None and not filled.contains(key(1))
    assert filled.put(key(1), entry(1))
    assert filled.verify().missing == 1
    assert filled.totals().entries == 9


def test_a_folder_that_is_deleted_while_open(filled: FolderTier) -> None:
    shutil.rmtree(filled.folder)

    assert filled.get(key(1)) is None and not filled.contains(key(1))
    assert filled.totals().entries == 0
    assert filled.put(key(1), entry(1))
    assert is_right(1, filled.get(key(1))) and filled.totals().entries == 1


def test_files_of_others_are_left_alone(filled: FolderTier) -> None:
    others = [filled.folder / "entries" / name for name in ("README", "x.safetensors", "0" * 64)]
    for other in others:
        other.write_text("mine")
    filled.verify()
    filled.purge()

    assert all(other.read_text() == "mine" for other in others)


def older_layout(index: Path) -> None:
    with sqlite3.connect(index) as db:
        db.execute("CREATE TABLE features (hash TEXT, path TEXT)")
    db.close()


def other_schema(index: Path) -> None:
    with sqlite3.connect(index) as db:
        db.executescript("CREATE TABLE entries (name TEXT); PRAGMA user_version = 1;")
    db.close()


def other_folders(index: Path) -> None:
    other = FolderTier(index.parent / "other", 10**9)
    for number in range(5, 25):
        other.put(key(number), entry(number, 1))
    other.close()
    shutil.copy(other.folder / "index.sqlite", index)


def spoil_pages(index: Path) -> None:
    content = bytearray(index.read_bytes())
    content[200 : len(content)] = b"\xa5" * (len(content) - 200)
    index.write_bytes(content)


INDEXES: dict[str, Callable[[Path], object]] = {
    "none": lambda index: None,
    "empty": lambda index: index.touch(),
    "no database": lambda index: index.write_text("no database " * 1000),
    "older layout": older_layout,
    "other schema": other_schema,
    "of another folder": other_folders,
}


@pytest.mark.parametrize("replace", INDEXES.values(), ids=INDEXES)
@pytest.mark.parametrize("opened", [False, True], ids=["closed", "open"])
def test_a_replaced_index_is_made_again_from_the_files(
    filled: FolderTier, replace: Callable[[Path], object], opened: bool
) -> None:
    totals = filled.totals()
    if not opened:
        filled.close()
    for path in filled.folder.glob("index.sqlite*"):
        path.unlink()
    replace(filled.folder / "index.sqlite")

    assert all(is_right(number, filled.get(key(number))) for number in NUMBERS)
    assert filled.totals() == totals
    assert filled.put(key(10), entry(10))
    assert len(filled.records()) == 11
    assert filled.verify().clean


@pytest.mark.parametrize("opened", [False, True], ids=["closed", "open"])
def test_an_index_that_is_damaged_in_place(filled: FolderTier, opened: bool) -> None:
    totals = filled.totals()
    filled.close()
    if opened:
        assert filled.totals() == totals
    spoil_pages(filled.folder / "index.sqlite")

    assert all(is_right(number, filled.get(key(number))) for number in NUMBERS)
    filled.put(key(10), entry(10))
    again = FolderTier(filled.folder, filled.limit)
    assert again.totals().entries == 11 and again.verify().clean


def test_an_index_of_a_newer_version_is_left_alone(filled: FolderTier) -> None:
    filled.close()
    with sqlite3.connect(filled.folder / "index.sqlite") as db:
        db.execute("PRAGMA user_version = 999")
    db.close()

    with pytest.raises(TierUnavailable, match="newer mmspec"):
        filled.put(key(10), entry(10))
    assert not (file_of(filled, 10)).exists()
    with sqlite3.connect(filled.folder / "index.sqlite") as db:
        assert db.execute("SELECT count(*) FROM entries").fetchone() == (10,)
    db.close()


def test_files_of_an_older_layout_are_dropped(filled: FolderTier, monkeypatch: pytest.MonkeyPatch) -> None:
    filled.close()
    for module in ("entry", "index"):
        monkeypatch.setattr(f"mmspec.encoders.cache.{module}.LAYOUT", 2)

    assert filled.get(key(1)) is None
    findings = filled.verify()
    assert findings.entries == 0 and filled.totals().entries == 0
    assert not list((filled.folder / "entries").iterdir())
