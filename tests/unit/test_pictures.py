"""Picture files as message parts, and files that are none."""

import base64
from pathlib import Path

import pytest
from PIL import Image

from mmspec import MmspecError
from mmspec.pictures import picture_part
from tests.odd_pictures import SETTINGS, OddPicture, odd_pictures


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "a picture.png"
    Image.new("RGB", (40, 30), "red").save(path)
    return path


def test_the_bytes_go_on_unchanged(picture: Path) -> None:
    kind, data = picture_part(picture)["image_url"]["url"].split(",")

    assert kind == "data:image/png;base64"
    assert base64.b64decode(data) == picture.read_bytes()


def test_the_type_is_told_by_content(picture: Path) -> None:
    renamed = picture.rename(picture.with_suffix(".jpg"))

    assert picture_part(renamed)["image_url"]["url"].startswith("data:image/png")


def test_a_missing_picture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MmspecError, match="no such file"):
        picture_part(tmp_path / "missing.png")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MmspecError, match="this is a folder"):
        picture_part(tmp_path)


def test_an_unreadable_picture_is_refused(picture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)  # the superuser can read everything

    with pytest.raises(MmspecError, match=r"cannot be read .Permission denied."):
        picture_part(picture)


@pytest.mark.parametrize("content", [b"just some text", b"%PDF-1.7", b"\x89PNG\r\n\x1a\n"])
def test_what_is_not_a_picture_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(content)

    with pytest.raises(MmspecError, match="not a picture"):
        picture_part(path)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.touch()

    with pytest.raises(MmspecError, match="empty"):
        picture_part(path)


def test_half_a_picture_is_refused(picture: Path) -> None:
    data = picture.read_bytes()
    picture.write_bytes(data[: len(data) // 2])

    with pytest.raises(MmspecError, match="broken"):
        picture_part(picture)


@pytest.mark.parametrize("odd", odd_pictures(), ids=str)
def test_odd_pictures_are_taken_or_refused_before_an_engine_starts(odd: OddPicture, tmp_path: Path) -> None:
    path = tmp_path / "odd.jpg"  # a name that is wrong for most
    path.write_bytes(odd.data)

    if odd.expected is not None:
        kind, data = picture_part(path, SETTINGS)["image_url"]["url"].split(",")
        assert base64.b64decode(data) == odd.data
        assert kind.startswith(("data:image/", "data:application/octet-stream"))
        return
    with pytest.raises(MmspecError) as caught:
        picture_part(path, SETTINGS)
    assert str(caught.value).startswith(f"picture {path}: ")
    assert odd.refused in str(caught.value)
