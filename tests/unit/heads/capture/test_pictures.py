"""Pictures are read from wherever a prompts file points, and known by their pixels."""

import base64
import http.server
import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from mmspec.errors import MmspecError
from mmspec.heads.capture.pictures import open_picture, picture_key
from tests.unit.heads.capture.conftest import decode


def png(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


RED = Image.new("RGB", (3, 2), "red")
DATA = base64.b64encode(png(RED)).decode()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "served.png").write_bytes(png(RED))

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(tmp_path))  # type: ignore[arg-type]

        def log_message(self, *arguments: object) -> None:
            return None

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.mark.parametrize(
    "reference",
    [
        "pictures/red one.png",
        "{folder}/pictures/red one.png",
        "file://{folder}/pictures/red%20one.png",
        "data:image/png;base64," + DATA,
        "DATA:IMAGE/PNG;BASE64," + DATA,
        "data:application/octet-stream;base64," + DATA,
        "{server}/served.png",
    ],
)
def test_the_same_pixels_have_the_same_key(reference: str, tmp_path: Path, server: str) -> None:
    (tmp_path / "pictures").mkdir()
    RED.save(tmp_path / "pictures" / "red one.png", compress_level=0)
    picture = open_picture(reference.format(folder=tmp_path, server=server), tmp_path, decode)
    assert picture.key == picture_key(RED)
    assert picture.image.size == RED.size


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("none.png", "No such file"),
        (".", "directory"),
        ("text.png", "not a whole picture|cannot identify"),
        ("cut.png", "truncated|not a whole picture|broken"),
        ("data:image/png;base64,@@@", "base64"),
        ("data:nothing", "comma"),
        ("{server}/missing.png", "404"),
    ],
)
def test_what_cannot_be_read_is_one_line_with_its_name(
    reference: str, reason: str, tmp_path: Path, server: str
) -> None:
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / "cut.png").write_bytes(png(Image.effect_noise((64, 64), 50))[:-2000])
    reference = reference.format(server=server)
    with pytest.raises(MmspecError, match=reason) as caught:
        open_picture(reference, tmp_path, decode)
    assert str(caught.value).startswith(f"picture {reference}: ")
    assert "\n" not in str(caught.value)


def test_a_long_data_url_is_not_repeated_whole(tmp_path: Path) -> None:
    with pytest.raises(MmspecError) as caught:
        open_picture("data:image/png;base64," + "@" * 10_000, tmp_path, decode)
    assert len(str(caught.value)) < 300


def test_keys_tell_shapes_and_modes_apart() -> None:
    pictures = [
        Image.new("RGB", (4, 1)),
        Image.new("RGB", (1, 4)),
        Image.new("RGB", (2, 2)),
        Image.new("L", (4, 3)),
    ]
    assert len({picture_key(picture) for picture in pictures}) == len(pictures)
