"""`mmspec tune`, `bench speed`, `bench positions` on tiny checkpoints: two engines in one process, every key there."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Checkpoints
from tests.engine.runners import runner_environment

pytestmark = [pytest.mark.engine, pytest.mark.slow]
SPEED = {"mean_acceptance_length", "tpot_speedup", "spread", "best_k", "pairs"}


@pytest.fixture(scope="module")
def measure(tiny: Checkpoints, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs a measurement on the tiny Qwen2.5-VL; returns the JSON that it printed, and the file that it wrote."""

    def run(*arguments: str) -> tuple[dict[str, Any], dict[str, Any]]:
        out = tmp_path_factory.mktemp("results") / "result.json"
        command = [sys.executable, "-m", "mmspec.cli.main", *arguments, "--json", "--out", str(out)]
        command += ["--model", str(tiny["qwen2_5_vl"]), "--max-model-len", "512", "--max-tokens", "8"]
        done = subprocess.run(
            command,
            env=runner_environment("v1"),
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1]), json.loads(out.read_text())

    return run


def test_tune_measures_every_size_and_recommends(measure: Any) -> None:
    printed, written = measure("tune", "-k", "1", "-k", "2", "--batch", "1", "--batch", "2")

    assert written["result"] == printed
    assert set(printed["measured"]) == {"1", "2"}
    assert set(printed["measured"]["2"]) == {"1", "2"}
    assert set(printed["measured"]["2"]["1"]) == SPEED
    assert printed["num_speculative_tokens"] in (0, 1, 2)
    assert [entry[:2] for entry in printed["num_speculative_tokens_per_batch_size"]] == [[1, 1], [2, 2]]


def test_speed_and_positions_of_a_head(measure: Any, tiny: Checkpoints) -> None:
    head = ("--head", str(tiny["eagle3"]))
    speed, _ = measure("bench", "speed", *head, "--scenes", "4", "-k", "2")
    positions, _ = measure("bench", "positions", *head, "--scenes", "2", "-k", "2")

    assert set(speed) == {"captions", "questions", "batch_4", "temperature_0_8"}
    assert all(set(case) == SPEED and case["best_k"] == 2 for case in speed.values())
    assert set(positions) == {"image", "text"}
    assert positions["text"]["stock"] == positions["text"]["mmspec"]
