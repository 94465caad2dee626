"""What an engine must refuse before it loads weights, whichever door it came through."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.conftest import quiet_environment

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, env=quiet_environment(), timeout=900
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"drfat": {}}, "unknown option 'drfat'; did you mean 'draft'?"),
        ({"fastv": {"layer": 8}}, "fastv.layer: 8 leaves nothing to prune in a model of 8 layers"),
    ],
)
def test_plain_vllm_serve_refuses_wrong_options(
    tiny_vlm: Path, options: dict[str, object], named: str
) -> None:
    done = run(
        *("mmspec.cli.vllm_launcher", "serve", str(tiny_vlm), "--port", "0"),
        *("--additional-config", json.dumps({"mmspec": options})),
    )

    assert done.returncode == 2
    assert f"mmspec: {named}" in done.stderr or named in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert "Starting to load model" not in done.stdout + done.stderr


def test_a_model_without_pictures_is_refused(tiny_text_model: Path) -> None:
    done = run("mmspec.cli.main", "chat", "--prompt", "hello", "--model", str(tiny_text_model))

    assert done.returncode != 0
    assert "is not multimodal" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_too_long_an_answer_is_refused(tiny_vlm: Path) -> None:
    done = run(
        *("mmspec.cli.main", "chat", "--prompt", "hello", "--model", str(tiny_vlm)),
        *("--max-tokens", "4000", "--json"),
    )

    assert done.returncode != 0
    assert "too long: the prompt takes" in done.stderr.splitlines()[-1]
    assert "lower max_tokens" in done.stderr.splitlines()[-1]
    assert done.stdout == ""
