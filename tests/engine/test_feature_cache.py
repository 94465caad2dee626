"""With the feature cache: the same answers, and a picture that was seen goes through the vision tower no more."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL.Image import Image

from tests.conftest import Checkpoints
from tests.engine.client import EngineWorker
from tests.engine.feature_cache import LARGEST, large_picture
from tests.engine.jobs import Job, Outcome
from tests.engine.scenarios import DRAFTED, MAX_TOKENS, chat, mixed_batch
from tests.oracle import Oracle
from tests.unit.encoders.cache.redis_server import Server

pytestmark = [pytest.mark.engine, pytest.mark.slow]

PICTURES = 3  # different ones in the batch


@pytest.fixture(scope="module")
def seeing_head(tiny: Checkpoints, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random head that gets the target's features at image positions."""
    folder = tmp_path_factory.mktemp("head") / "seeing"
    shutil.copytree(tiny["eagle3_speculators"], folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"mmspec": {"vision": "features"}}))
    return folder


@pytest.mark.parametrize(
    ("runner", "family"),
    [
        pytest.param("v1", "qwen2_5_vl"),
        pytest.param("v1", "qwen3_vl"),
        pytest.param("v1", "llava"),
        pytest.param("v2", "qwen2_5_vl", marks=pytest.mark.v2),
    ],
)
def test_a_second_engine_encodes_only_what_it_cannot_load(
    runner: str,
    family: str,
    tiny: Checkpoints,
    seeing_head: Path,
    oracles: Callable[[str], Oracle],
    pictures: dict[str, Image],
    engine_workers: Callable[[str], EngineWorker],
    tmp_path: Path,
) -> None:
    """Target and draft get the same features: the head, which sees them, drafts the same when they were loaded."""
    expected = answers(oracles(family), family, pictures)
    job = Job(
        model=str(tiny[family]),
        requests=mixed_batch(family),
        speculative={
            "method": "eagle3",
            "model": str(seeing_head),
            "num_speculative_tokens": DRAFTED,
        },
        engine={
            "additional_config": {"mmspec": {"encoder_cache": {"directory": str(tmp_path)}}},
            "scheduler_cls": "mmspec.scheduler.build_scheduler",
            "enable_prefix_caching": False,
        },
        max_tokens=MAX_TOKENS,
    )
    first = engine_workers(runner).run(job)
    job.lost_loads = 1
    second = engine_workers(runner).run(job)

    assert first.tokens == second.tokens == expected
    assert (first.runner, first.encoded, second.encoded) == (runner, PICTURES, 1)
    assert reported(first) == (PICTURES, None) and reported(second) == (1, "disk")
    assert [(a.drafted, a.accepted) for a in first.answers] == [
        (a.drafted, a.accepted) for a in second.answers
    ]
    assert not list((tmp_path / "held").iterdir())


@pytest.mark.v2
def test_host_memory_and_a_redis_server_on_the_v2_runner(
    tiny: Checkpoints,
    oracles: Callable[[str], Oracle],
    engine_workers: Callable[[str], EngineWorker],
    tmp_path: Path,
) -> None:
    """vLLM's own cache holds one picture, and host memory two."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed (Debian: apt install redis-server)")
    oracle, requests, expected = oracles("qwen2_5_vl"), [], []
    for number in (0, 1, 2, 0, 2):
        picture = large_picture(number)
        picture.save(path := str(tmp_path / f"{number}.png"))
        requests.append(chat("qwen2_5_vl", "What is in the picture?", (path,)))
        expected.append(oracle.greedy(oracle.prompt(requests[-1].text, [picture]), 8))
    server = Server(tmp_path)
    try:
        cache = {"memory_size": "45kB", "remote": server.url}
        job = Job(
            model=str(tiny["qwen2_5_vl"]),
            requests=requests,
            engine={
                "additional_config": {"mmspec": {"encoder_cache": cache}},
                "scheduler_cls": "mmspec.scheduler.build_scheduler",
                "enable_prefix_caching": False,
                "max_num_batched_tokens": LARGEST,
                "limit_mm_per_prompt": {"image": 1, "video": 0},
            },
            max_tokens=8,
            one_by_one=True,
        )
        outcome = engine_workers("v2").run(job)
    finally:
        server.stop()

    assert outcome.tokens == expected
    assert (outcome.runner, outcome.encoded) == ("v2", PICTURES)
    tiers = [(answer.encoder_cache or {}).get("tier") for answer in outcome.answers]
    assert tiers == [None, None, None, "remote", "host"]


def answers(oracle: Oracle, family: str, pictures: dict[str, Image]) -> list[Any]:
    return [
        oracle.greedy(oracle.prompt(request.text, [pictures[name] for name in request.images]), MAX_TOKENS)
        for request in mixed_batch(family)
    ]


def reported(outcome: Outcome) -> tuple[int, str | None]:
    """Misses in all, and the farthest tier that a hit came from, other than vLLM's own."""
    reports = [answer.encoder_cache for answer in outcome.answers if answer.encoder_cache]
    tiers = {report["tier"] for report in reports} - {None, "device"}
    return sum(report["misses"] for report in reports), max(tiers, default=None)
