"""Watches what an engine in this process does with its vision tower and its feature cache."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch


def count_encoded(llm: Any) -> list[int]:
    """A list that gets, with each run of the vision tower, the number of pictures in it."""
    model = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.model_runner.get_model()
    runs: list[int] = []
    embed = model.embed_multimodal

    def counting(**pictures: Any) -> Any:
        features = embed(**pictures)
        runs.append(len(features))
        return features

    model.embed_multimodal = counting
    return runs


@contextmanager
def losing(loads: int) -> Iterator[None]:
    """Has the first so many of the features that were promised be gone when a worker takes them."""
    from mmspec.encoders.cache import TieredStore

    take, lost = TieredStore.take, []

    def sometimes(self: TieredStore, key: Any, held: Any) -> Any:
        if len(lost) < loads:
            lost.append(key)
            return None
        return take(self, key, held)

    with patch.object(TieredStore, "take", sometimes):
        yield
