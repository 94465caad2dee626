"""Counts the prompts that were to be pruned and go on whole, where `/metrics` is answered."""

import logging
import math
from functools import cache
from typing import Any

_log = logging.getLogger("vllm.plugins.mmspec")
TOO_LONG = "too long for one step"
# Without vLLM's name in it: those metrics it forgets when another engine starts in the process.
NAME = "mmspec_fastv_unpruned_prompts"


@cache
def unpruned_prompts() -> Any:
    """The counter, made with the process's first engine that prunes, so that it is there before it counts."""
    from prometheus_client import Counter

    return Counter(
        NAME, "Prompts that FastV was to prune and that went on whole.", labelnames=["model_name", "reason"]
    )


class Unpruned:
    """Counts and tells for one engine."""

    def __init__(self, model_name: str) -> None:
        self._model_name = model_name
        self._told: dict[str, int] = {}  # by reason
        unpruned_prompts().labels(model_name, TOO_LONG)  # a page with a nought says more than one without

    def note(self, reason: str, line: str) -> None:
        """One more prompt; `line` says what to do about it, and is logged for the 1st, 10th, 100th, …"""
        unpruned_prompts().labels(self._model_name, reason).inc()
        count = self._told[reason] = self._told.get(reason, 0) + 1
        if math.log10(count).is_integer():
            _log.warning("mmspec: %s (%d so far)", line, count)
