"""At temperature 1 drafting leaves the distribution of the next tokens as it is."""

import json
import subprocess
import sys
from collections import Counter
from math import pi, sqrt
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Checkpoints
from tests.engine.runners import runner_environment

pytestmark = [pytest.mark.engine, pytest.mark.slow]

DRAWS = 2000


@pytest.fixture(scope="module")
def drawn(tiny: Checkpoints) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.draws", str(tiny["qwen2_5_vl"]), str(DRAWS)],
        env=runner_environment("v1"),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return results


def test_sampled_tokens_keep_their_distribution(drawn: dict[str, Any]) -> None:
    assert drawn["drafted"]["accepted"] > DRAWS / 4, "too few drafts were accepted to tell"
    assert distance(drawn["direct"], drawn["drafted"]) < _bound(drawn["direct"])


def test_the_distance_shows_a_broken_acceptance_rule(drawn: dict[str, Any]) -> None:
    assert distance(drawn["direct"], drawn["broken"]) > 2 * _bound(drawn["direct"])


def distance(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Total variation between two sets of draws."""
    a, b = Counter(one["said"]), Counter(other["said"])
    return sum(abs(a[said] / a.total() - b[said] / b.total()) for said in a | b) / 2


def _bound(direct: dict[str, Any]) -> float:
    """Twice the distance to be expected of two sets of draws from the distribution that was seen.

    The difference of two shares p has a variance of 2 p (1 - p) / draws, and the mean size of a normal variable is
    its deviation times sqrt(2 / pi).
    """
    said = Counter(direct["said"])
    shares = (count / said.total() for count in said.values())
    return 2 * sum(sqrt(2 * p * (1 - p) / said.total()) for p in shares) * sqrt(2 / pi) / 2
