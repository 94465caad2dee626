"""A head's folder is there whole or not at all, and what is in the way stays."""

from pathlib import Path

import pytest

from mmspec.errors import MmspecError
from mmspec.heads.formats.folder import new_folder


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def head(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("old")
    (folder / "extra").write_text("old")
    return folder


def test_a_folder_appears_when_the_block_ends(tmp_path: Path) -> None:
    with new_folder(tmp_path / "deep" / "out", force=False) as beside:
        (beside / "config.json").write_text("new")
        assert not (tmp_path / "deep" / "out").exists()

    assert files(tmp_path) == ["deep", "deep/out", "deep/out/config.json"]
    assert (tmp_path / "deep" / "out").stat().st_mode & 0o077 == 0o055


def test_force_replaces_a_head_as_a_whole(tmp_path: Path) -> None:
    out = head(tmp_path / "out")
    with new_folder(out, force=True) as beside:
        (beside / "config.json").write_text("new")
        assert (out / "config.json").read_text() == "old"

    assert files(tmp_path) == ["out", "out/config.json"]
    assert (out / "config.json").read_text() == "new"


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_a_block_that_fails_leaves_all_as_it_was(error: BaseException, tmp_path: Path) -> None:
    head(tmp_path / "out")
    before = files(tmp_path)

    with pytest.raises(type(error)), new_folder(tmp_path / "out", force=True) as beside:
        (beside / "config.json").write_text("new")
        raise error

    assert files(tmp_path) == before
    assert (tmp_path / "out" / "config.json").read_text() == "old"


def test_a_full_disk_leaves_all_as_it_was(tmp_path: Path) -> None:
    head(tmp_path / "out")
    before = files(tmp_path)

    with pytest.raises(MmspecError, match="No space left"), new_folder(tmp_path / "out", force=True):
        raise OSError(28, "No space left on device")

    assert files(tmp_path) == before


def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    head(tmp_path / "head")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("dear to someone")
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "head")
    before = files(tmp_path)

    for name, force, named in [
        ("head", False, "not empty; give another folder, or --force"),
        ("other", False, "not empty"),
        ("other", True, "something else than a head"),
        ("file", True, "is not a folder"),
        ("link", True, "is not a folder"),
        ("file/below", False, "cannot be written"),
    ]:
        with pytest.raises(MmspecError, match=named), new_folder(tmp_path / name, force=force):
            pass
    assert files(tmp_path) == before


def test_an_empty_folder_may_be_there(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()

    with new_folder(tmp_path / "out", force=False) as beside:
        (beside / "config.json").write_text("new")

    assert files(tmp_path) == ["out", "out/config.json"]
