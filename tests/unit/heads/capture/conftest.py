"""A prompts file with pictures of its own, and captures of it with the fake engine."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mmspec.heads.capture import Summary, capture
from tests.unit.heads.capture.fake import TARGET, FakeEngine, settings, starts, user

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes lines (objects, or text as it is) into a prompts file beside two pictures, red.png and blue.png."""
    Image.new("RGB", (3, 2), "red").save(tmp_path / "red.png")
    Image.new("RGB", (5, 4), "blue").save(tmp_path / "blue.png")

    def write_lines(*lines: Any, name: str = "prompts.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
        return path

    return write_lines


@pytest.fixture
def prompts(write: Write) -> Path:
    """Eight conversations: text, one picture, two pictures, follow-ups."""
    return write(
        {"messages": [user("Hello?")]},
        {"messages": [user("What is it?", "red.png")]},
        {"messages": [user("Compare.", "red.png", "blue.png")]},
        {"messages": [user("And now?", "blue.png")]},
        {"messages": [user("One."), {"role": "assistant", "content": "Two."}, user("Three?", "red.png")]},
        {"image": "blue.png", "messages": [{"role": "user", "content": "Which colour?"}]},
        {"messages": [{"role": "system", "content": "Be brief."}, user("Twice.", "red.png", "red.png")]},
        {"messages": [user("Last one.")]},
    )


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Summary]:
    """`run(prompts, folder, engine=…, **settings)` captures with the fake engine."""

    def run_capture(
        prompts: Path, folder: Path, *, engine: FakeEngine | None = None, target: Any = TARGET, **given: Any
    ) -> Summary:
        return capture(settings(prompts, folder, **given), target, starts(engine), decode=decode)

    return run_capture


def decode(data: bytes) -> Image.Image:
    import io

    return Image.open(io.BytesIO(data)).convert("RGB")
