"""Lets a prompt go on from one picture to the next when the encoder cache holds only one of them.

With EAGLE, vLLM 0.32 stops a prefill one token early before a picture that has no room, because the draft reads one
token ahead, and keeps the picture before it until the prompt is one token past it. With fewer than two tokens
between them, as in LLaVA's prompts, the first waits for the second and the second for the first, for ever.
"""

import functools
from collections.abc import Callable
from typing import Any

from mmspec.compat import SUPPORTED
from mmspec.patches.configured import is_configured
from mmspec.patches.patch import Patch

Scheduled = tuple[list[int], int, int, list[int], list[int]]


def _wrap(original: Callable[..., Scheduled]) -> Callable[..., Scheduled]:
    @functools.wraps(original)
    def _try_schedule_encoder_inputs(
        self: Any,
        request: Any,
        num_computed_tokens: int,
        num_new_tokens: int,
        encoder_compute_budget: int,
        shift_computed_tokens: int = 0,
    ) -> Scheduled:
        wanted = (request, num_computed_tokens, num_new_tokens, encoder_compute_budget)
        scheduled = original(self, *wanted, shift_computed_tokens)
        if (
            not shift_computed_tokens
            or not num_new_tokens
            or not is_configured(self.vllm_config.additional_config)
        ):
            return scheduled
        if _is_stuck(scheduled) and _let_go(self, request, num_computed_tokens):
            scheduled = original(self, *wanted, shift_computed_tokens)
        if _is_stuck(scheduled) and self.encoder_cache_manager.get_cached_input_ids(request):
            # One token of the picture before is left: the draft does without what it cannot read yet.
            scheduled = original(self, *wanted, 0)
        return scheduled

    return _try_schedule_encoder_inputs


def _is_stuck(scheduled: Scheduled) -> bool:
    return scheduled[1] == 0


def _let_go(scheduler: Any, request: Any, computed: int) -> bool:
    """Gives back the request's pictures that lie behind it; the draft, a token ahead, is past them too."""
    passed = [
        index
        for index in scheduler.encoder_cache_manager.get_cached_input_ids(request)
        if request.mm_features[index].mm_position.offset + request.mm_features[index].mm_position.length
        <= computed
    ]
    for index in passed:
        scheduler._free_encoder_input(request, index)
    return bool(passed)


PASS_BETWEEN_PICTURES = Patch(
    target="vllm.v1.core.sched.scheduler:Scheduler._try_schedule_encoder_inputs",
    parameters=(
        "self",
        "request",
        "num_computed_tokens",
        "num_new_tokens",
        "encoder_compute_budget",
        "shift_computed_tokens",
    ),
    wrap=_wrap,
    why="with EAGLE a request hangs for ever between two pictures with fewer than two tokens between them, as in "
    "LLaVA's prompts, when the encoder cache has no room for both",
    upstream="none known for vLLM; the same is vllm-ascend issue 17195, and it came with vLLM pull request 46315",
    versions=SUPPORTED,
    remove_when="a picture is given back when the target is past it, or the last chunk before one may end at it",
    lazy=True,
)
