"""Pruning and the feature cache in one engine: what the tower made of a picture serves requests pruned and not."""

from pathlib import Path

import pytest

from tests.conftest import Checkpoints
from tests.engine.feature_cache import (
    LARGEST,
    PLACE,
    QUESTION,
    Starting,
    caching_engine,
    large_picture,
    prompt_of,
)
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
