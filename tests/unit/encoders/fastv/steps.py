"""Scheduler outputs and prompts made by hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from mmspec.encoders.fastv.budget import Budget
from mmspec.encoders.fastv.prompt import Prompt


def place(offset: int, length: int, is_embed: Any = None) -> SimpleNamespace:
    """The fields of vLLM's `PlaceholderRange` that are read."""
    return SimpleNamespace(offset=offset, length=length, is_embed=is_embed)


def new(
    name: str, length: int, places: tuple[SimpleNamespace, ...] = (), computed: int = 0, **arguments: Any
) -> SimpleNamespace:
    """A newly scheduled request with pictures at `places`."""
    return SimpleNamespace(
        req_id=name,
        prompt_token_ids=list(range(length)),
        mm_features=[SimpleNamespace(modality="image", mm_position=one) for one in places],
        sampling_params=SimpleNamespace(extra_args=arguments or None),
        num_computed_tokens=computed,
    )


def output(
    scheduled: dict[str, int],
    fresh: tuple[SimpleNamespace, ...] = (),
    computed: dict[str, int] | None = None,
    finished: tuple[str, ...] = (),
) -> SimpleNamespace:
    """vLLM's `SchedulerOutput`: `computed` are the tokens done before of requests that were scheduled before."""
    computed = computed or {}
    return SimpleNamespace(
        num_scheduled_tokens=scheduled,
        scheduled_new_reqs=list(fresh),
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=list(computed), num_computed_tokens=list(computed.values())
        ),
        finished_req_ids=set(finished),
    )


def prompt(length: int, *pictures: list[int], keep: float = 0.5, per_image: bool = False) -> Prompt:
    indices = tuple(np.array(one) for one in pictures)
    return Prompt("request", length, indices, Budget(keep=keep), per_image)
