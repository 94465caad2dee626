"""`mmspec chat` from the outside: what it prints."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from tests.serve.conftest import quiet_environment

pytestmark = [pytest.mark.engine, pytest.mark.slow]

KEYS = {
    "text",
    "token_ids",
    "mean_acceptance_length",
    "drafts",
    "draft_tokens",
    "accepted_tokens",
    "accepted_per_position",
    "ttft_ms",
    "tpot_ms",
    "encoder_cache",
    "visual_tokens",
    "output_matches_baseline",
}


def test_an_answer_is_streamed_and_its_statistics_are_printed(tiny_vlm: Path, tmp_path: Path) -> None:
    pictures = []
    for number, colour in enumerate(["red", "blue"]):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", (112, 84), colour).save(path)
        pictures += ["--image", str(path)]

    options = ["--model", str(tiny_vlm), "--max-tokens", "24", "--check", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "mmspec.cli.main", "chat", *pictures, "--prompt", "abcd abcd abcd", *options],
        capture_output=True,
        text=True,
        env=quiet_environment(),
        timeout=900,
    )

    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    result = json.loads(line)
    assert set(result) == KEYS
    assert result["text"] in done.stderr
    assert result["output_matches_baseline"] is True
    assert result["encoder_cache"] == {"hits": 0, "misses": 2, "tier": None}
    assert result["visual_tokens"] == {"seen": 24, "kept": 24}
    assert result["ttft_ms"] > 0
    # vLLM's own log stays off the terminal.
    assert "INFO" not in done.stderr
    assert "WARNING" not in done.stderr


def test_what_was_changed_about_a_picture_and_kept_of_it_is_said(tiny_vlm: Path, tmp_path: Path) -> None:
    path = tmp_path / "glass.png"
    Image.new("RGBA", (112, 84), (255, 0, 0, 128)).save(path)
    drawing = tmp_path / "kept.png"
    options = ["--model", str(tiny_vlm), "--max-tokens", "4", "--json"]
    options += ["--fastv-keep", "0.5", "--show-kept", str(drawing)]

    done = subprocess.run(
        [sys.executable, "-m", "mmspec.cli.main", "chat", "--image", str(path), "--prompt", "abcd", *options],
        capture_output=True,
        text=True,
        env=quiet_environment(),
        timeout=900,
    )

    assert done.returncode == 0, done.stderr
    assert "transparent places filled with white" in done.stderr
    result = json.loads(done.stdout)
    assert set(result) == KEYS - {"output_matches_baseline"}
    assert result["visual_tokens"] == {"seen": 12, "kept": 6}
    # Half-transparent red over white; where a patch was dropped, a quarter as bright.
    counts = Counter(Image.open(drawing).convert("RGB").getdata())
    assert counts[255, 127, 127] == pytest.approx(counts[63, 31, 31], rel=0.02)
