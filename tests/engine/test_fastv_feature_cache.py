"""Pruning and the feature cache in one engine: what the tower made of a picture serves requests pruned and not."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL.Image import Image

from tests.conftest import Checkpoints
from tests.engine.client import EngineWorker
from tests.engine.feature_cache import (
    LARGEST,
    PLACE,
    QUESTION,
    Starting,
    caching_engine,
    large_picture,
    prompt_of,
)
from tests.engine.jobs import Job, Request
from tests.engine.scenarios import chat
from tests.fastv_oracle import FastVOracle

pytestmark = [pytest.mark.engine, pytest.mark.slow]

LAYER, KEEP = 2, 0.5
STEP = 2 * LARGEST - 1  # tokens: room for a prompt, and in vLLM's own cache for one picture


def test_features_that_were_loaded_are_pruned_as_those_that_were_encoded(
    vllm_engine: Starting, tiny: Checkpoints, tmp_path: Path
) -> None:
    """Every request has a salt of its own in the prefix cache, which must not keep it from the pictures' features."""
    reference = FastVOracle(tiny["qwen2_5_vl"])
    pictures = [large_picture(number) for number in range(2)]
    prompts = [reference.prompt(QUESTION.format(PLACE), [picture]) for picture in pictures]
    features, pruning = {"directory": str(tmp_path)}, {"layer": LAYER, "keep": KEEP}
    additional = {"mmspec": {"encoder_cache": features, "fastv": pruning}}
    options = {"additional_config": additional, "enable_prefix_caching": True}
    with caching_engine(
        vllm_engine, tiny["qwen2_5_vl"], features, max_num_batched_tokens=STEP, **options
    ) as engine:

        def ask(number: int, keep: float = KEEP, salt: str | None = None) -> tuple[int, str | None]:
            """Pictures that were encoded for a question, and the tier that one came from."""
            engine.keep = keep
            (answer,) = engine.ask(prompt_of(pictures[number], salt=salt))
            engine.settle()
            assert answer == reference.answer(prompts[number], engine.max_tokens, layer=LAYER, keep=keep)
            return engine.encoded(), engine.reports[0]["tier"]

        assert [ask(0), ask(1)] == [(1, None)] * 2
        assert [ask(0), ask(1, keep=1.0), ask(0, keep=0.25)] == [(0, "disk")] * 3
        assert ask(1, salt="tenant") == (1, None), "a user's own salt keeps features apart"
        assert [ask(0, salt="tenant"), ask(1, salt="tenant")] == [(1, None), (0, "disk")]


@pytest.mark.v2
def test_together_on_the_v2_runner(
    tiny: Checkpoints,
    pictures: dict[str, Image],
    engine_workers: Callable[[str], EngineWorker],
    tmp_path: Path,
) -> None:
    """A second engine prunes what it loads, and what it has to encode since one of the loads is lost."""
    asked = [
        chat("qwen2_5_vl", "What is in the picture?"),
        chat("qwen2_5_vl", "What is in the picture?", ("red_square",)),
        chat("qwen2_5_vl", "Compare the first picture with the second.", ("stripes", "blue_disc")),
    ]
    requests = [Request(one.text, one.images, keep) for one in asked for keep in (1.0, KEEP)]
    reference = FastVOracle(tiny["qwen2_5_vl"])
    expected, kept = [], []
    for one in requests:
        prompt = reference.prompt(one.text, [pictures[name] for name in one.images])
        expected.append(reference.answer(prompt, 8, layer=LAYER, keep=one.keep or 1.0))
        kept.append(reference.kept if one.keep != 1.0 and one.images else [])
    options = {"encoder_cache": {"directory": str(tmp_path)}, "fastv": {"layer": LAYER, "keep": 1.0}}
    engine = {"additional_config": {"mmspec": options}, "scheduler_cls": "mmspec.scheduler.build_scheduler"}
    job = Job(str(tiny["qwen2_5_vl"]), requests, engine=engine, max_tokens=8)

    first = engine_workers("v2").run(job)
    job.lost_loads = 1
    second = engine_workers("v2").run(job)

    assert first.tokens == second.tokens == expected
    assert [answer.kept for answer in second.answers] == kept
    assert (first.runner, first.encoded, second.encoded) == ("v2", 3, 1)
    tiers = {(answer.encoder_cache or {}).get("tier") for answer in second.answers}
    assert "disk" in tiers
