"""What an engine must refuse before it loads weights, whichever door it came through."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.long import LONG
from tests.serve.conftest import last_json, quiet_environment

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        capture_output=True,
        text=True,
        env=quiet_environment(**environment),
        timeout=900,
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"drfat": {}}, "unknown option 'drfat'; did you mean 'draft'?"),
        ({"fastv": {"layer": 8}}, "fastv.layer: 8 leaves nothing to prune in a model of 8 layers"),
        pytest.param(
            {"encoder_cache": {"memory_size": "1GB", "remote": "redis://host"}},
            "encoder_cache.remote: the Python package redis is missing; pip install redis, or mmspec[remote]",
            marks=LONG,  # found as the first is
        ),
    ],
)
def test_plain_vllm_serve_refuses_wrong_options(
    tiny_vlm: Path, options: dict[str, object], named: str, tmp_path: Path
) -> None:
    (tmp_path / "redis.py").write_text("raise ImportError")  # as if it were not installed
    done = run(
        *("mmspec.cli.vllm_launcher", "serve", str(tiny_vlm), "--port", "0"),
        *("--additional-config", json.dumps({"mmspec": options})),
        PYTHONPATH=str(tmp_path),
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


DRY_RUNS: list[tuple[list[str], str]] = [
    ([], ""),
    (
        ["--max-modl-len", "512"],
        "--max-modl-len: neither vllm serve nor mmspec serve knows it; did you mean --max-model-len?",
    ),
    (["--fastv-kep", "0.5"], "did you mean --fastv-keep?"),
    (["--seed", "many"], "vllm serve: argument --seed"),
    (["--max-model-len", "1000000"], "vllm serve would refuse this"),
    (
        ["--fastv", "0.5", "--fastv-layer", "8"],
        "fastv.layer: 8 leaves nothing to prune in a model of 8 layers",
    ),
]


def test_a_dry_run_says_what_a_start_would_refuse(tiny_vlm: Path) -> None:
    given = json.dumps([flags for flags, _ in DRY_RUNS])

    sound, *wrong = last_json("-m", "tests.serve.dry_runs", str(tiny_vlm), given)

    assert sound["code"] == 0 and sound["out"].startswith("vllm serve ") and sound["out"].count("\n") == 1
    assert not sound["err"]
    for (flags, named), found in zip(DRY_RUNS[1:], wrong, strict=True):
        assert found["code"] == 2, flags
        assert named in found["err"].splitlines()[-1], flags
        assert not found["out"] and "Traceback" not in found["err"]
