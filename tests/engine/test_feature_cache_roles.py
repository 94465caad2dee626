"""The feature cache between engines: one encodes pictures, another answers about them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Checkpoints
from tests.engine.feature_cache import PLACE, QUESTION, Starting, caching_engine, large_picture, prompt_of
from tests.oracle import Oracle

pytestmark = [pytest.mark.engine, pytest.mark.slow]

FAMILY = "qwen2_5_vl"


def test_a_consumer_answers_about_what_a_producer_encoded(
    vllm_engine: Starting, tiny: Checkpoints, oracles: Callable[[str], Oracle], tmp_path: Path
) -> None:
    pictures = [large_picture(number) for number in range(3)]
    oracle = oracles(FAMILY)
    question = QUESTION.format(PLACE)
    expected = [list(oracle.greedy(oracle.prompt(question, [picture]), 8)) for picture in pictures]
    options = {"directory": str(tmp_path)}
    with caching_engine(vllm_engine, tiny[FAMILY], options | {"role": "producer"}) as producer:
        producer.ask(*[prompt_of(picture) for picture in pictures])
        assert producer.encoded() == 3

    with caching_engine(vllm_engine, tiny[FAMILY], options | {"role": "consumer"}) as consumer:
        assert consumer.ask(*[prompt_of(picture) for picture in pictures]) == expected
        assert consumer.encoded() == 0
        assert consumer.reports == [{"hits": 1, "misses": 0, "tier": "disk"}] * 3
        # What nobody encoded yet it encodes itself, and does not save.
        consumer.ask(prompt_of(large_picture(7)))
        assert consumer.encoded() == 1

    assert len(list((tmp_path / "entries").iterdir())) == 3
