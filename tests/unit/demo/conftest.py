"""Pieces of a conversation as the page has them."""

from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("gradio", reason="the demo needs gradio: pip install 'mmspec[demo]'")


@pytest.fixture
def picture(tmp_path: Path) -> str:
    path = tmp_path / "red.png"
    Image.new("RGB", (40, 30), "red").save(path)
    return str(path)
