"""With drafting off, vLLM's greedy tokens are those of a plain transformers loop, in float32."""

from collections.abc import Callable
from typing import Any

import pytest
from PIL.Image import Image

from tests.engine.conftest import EngineRun
from tests.engine.scenarios import MAX_TOKENS, mixed_batch
from tests.oracle import Oracle

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def test_greedy_tokens_are_those_of_transformers(
    runner: str,
    family: str,
    engine_run: EngineRun,
    oracles: Callable[[str], Oracle],
    pictures: dict[str, Image],
) -> None:
    outcome = engine_run(runner, family, "none")
    oracle = oracles(family)
    expected: list[Any] = []
    for request in mixed_batch(family):
        prompt = oracle.prompt(request.text, [pictures[name] for name in request.images])
        expected.append((prompt["input_ids"][0].tolist(), oracle.greedy(prompt, MAX_TOKENS)))

    assert outcome.error is None
    assert outcome.runner == runner
    assert [answer.prompt_token_ids for answer in outcome.answers] == [ids for ids, _ in expected]
    assert outcome.tokens == [tokens for _, tokens in expected]
