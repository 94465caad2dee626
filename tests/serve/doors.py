"""Every odd picture through the doors of a process: `mmspec.LLM.chat`, and `mmspec chat` with its engine put in."""

import base64
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.odd_pictures import SETTINGS, OddPicture, odd_pictures
from tests.serve.captured import run

RIGHT = "right"


def through_both(llm: Any) -> dict[str, dict[str, str]]:
    """What became of each picture, by its name, in `python` and `chat`: `right`, `wrong`, or the line of a refusal."""
    from vllm import SamplingParams

    from mmspec import MmspecError

    sampling = SamplingParams(max_tokens=1, temperature=0)

    def ask(odd: OddPicture) -> None:
        url = "data:image/png;base64," + base64.b64encode(odd.data).decode()
        parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "abcd"}]
        llm.chat([{"role": "user", "content": parts}], sampling, use_tqdm=False)

    found: dict[str, dict[str, str]] = {}
    with _pixels_on_their_way() as pixels, _engine_of_chat(llm), tempfile.TemporaryDirectory() as folder:
        for odd in odd_pictures():
            try:
                ask(odd)
                python = _verdict(odd, pixels)
            except MmspecError as refusal:
                python = str(refusal)
            found[odd.name] = {"python": python, "chat": _through_chat(odd, Path(folder) / "file", pixels)}
    return found


def _through_chat(odd: OddPicture, path: Path, pixels: list[Any]) -> str:
    from mmspec.cli.main import main

    path.write_bytes(odd.data)
    limits = json.dumps({"max_bytes": SETTINGS.max_bytes, "max_pixels": SETTINGS.max_pixels})
    arguments = ["chat", "--image", str(path), "--prompt", "abcd", "--max-tokens", "1", "--intake", limits]
    ended = run(lambda: main(arguments))
    return _verdict(odd, pixels) if ended.code == 0 else f"exit {ended.code}: {ended.err.splitlines()[-1]}"


def _verdict(odd: OddPicture, pixels: list[Any]) -> str:
    """Whether vLLM was handed the right pixels."""
    (found,) = pixels
    pixels.clear()
    if odd.expected is None or found.shape != odd.expected.shape:
        return "wrong"
    return RIGHT if np.abs(found.astype(int) - odd.expected.astype(int)).max() <= odd.tolerance else "wrong"


@contextmanager
def _pixels_on_their_way() -> Iterator[list[Any]]:
    """The pixels of every picture that vLLM is handed."""
    from mmspec.encoders.intake.connector import IntakeConnector

    pixels: list[Any] = []
    fetch = IntakeConnector.fetch_image

    def fetch_image(self: Any, *arguments: Any, **options: Any) -> Any:
        picture = fetch(self, *arguments, **options)
        pixels.append(np.asarray(picture.media))
        return picture

    IntakeConnector.fetch_image = fetch_image  # type: ignore[method-assign]
    yield pixels
    IntakeConnector.fetch_image = fetch  # type: ignore[method-assign]


@contextmanager
def _engine_of_chat(llm: Any) -> Iterator[None]:
    """`mmspec chat` is given an engine that is there already, and must not end it."""
    from mmspec.cli import chat

    start, close = chat._start, llm.close
    chat._start, llm.close = lambda *arguments: llm, lambda: None  # type: ignore[assignment]
    yield
    chat._start, llm.close = start, close
