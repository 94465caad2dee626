"""Keeps prompts that are to be pruned in one piece, and books for the statistics what became of them."""

import logging
from typing import Any

from mmspec.encoders.fastv.book import Book
from mmspec.encoders.fastv.budget import KEEP, KEEP_TOKENS
from mmspec.encoders.fastv.fitting import longest_prompt, setting_to_raise
from mmspec.encoders.fastv.settings import engine_settings

_log = logging.getLogger("vllm.plugins.mmspec")

Scheduled = tuple[list[int], int, int, list[int], list[int]]


class WholePrompts:
    """Mixed into a scheduler of vLLM's; without `fastv` in the engine's configuration everything passes through.

    A prompt that is cut into chunks cannot be pruned: its first chunk does not know the question. vLLM cuts whenever
    other requests have taken a part of the step. One that would fit into a step of its own is put off to the next step
    instead, so that whether it is pruned does not depend on what else is going on. Those that would not are no longer
    meant to be pruned when they come here (`mmspec.encoders.fastv.requests`).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = engine_settings(self.vllm_config.additional_config)  # type: ignore[attr-defined]
        self.fastv_book = Book(settings) if settings else None
        self.unpruned_prompts = 0  # prompts so far that went unpruned because they did not fit one step

    def _try_schedule_encoder_inputs(
        self,
        request: Any,
        num_computed_tokens: int,
        num_new_tokens: int,
        encoder_compute_budget: int,
        shift_computed_tokens: int = 0,
    ) -> Scheduled:
        put_off: Scheduled = ([], 0, encoder_compute_budget, [], [])
        matters = self.fastv_book is not None and not num_computed_tokens and _is_pruned(request)
        length = request.num_prompt_tokens
        if matters and num_new_tokens < length <= longest_prompt(self.vllm_config):  # type: ignore[attr-defined]
            return put_off
        scheduled: Scheduled = super()._try_schedule_encoder_inputs(  # type: ignore[misc]
            request, num_computed_tokens, num_new_tokens, encoder_compute_budget, shift_computed_tokens
        )
        if not matters or not scheduled[1] < length <= num_new_tokens:
            return scheduled
        others_encode = encoder_compute_budget < self.max_num_encoder_input_tokens  # type: ignore[attr-defined]
        return put_off if others_encode or self._others_hold_pictures() else scheduled

    def _others_hold_pictures(self) -> bool:
        """Whether running requests need room of vLLM's encoder cache: what they loaded took no encoder budget.

        They go on and let go of it. Requests that wait may hold pictures, too, but only as long as we put them off.
        """
        running = {request.request_id for request in self.running}  # type: ignore[attr-defined]
        holders: Any = self.encoder_cache_manager.cached  # type: ignore[attr-defined]
        return any(running & ids for ids in holders.values())

    def book(self, scheduler_output: Any) -> None:
        """Takes in a step that has been computed; says so when a prompt went unpruned."""
        if self.fastv_book is None:
            return
        before = set(self.fastv_book.cut)
        self.fastv_book.begin(scheduler_output)
        for name in self.fastv_book.cut - before:
            self.unpruned_prompts += 1
            _log.warning(
                "mmspec: the prompt of request %s did not fit one step and went on unpruned (%d so far); raise %s",
                name,
                self.unpruned_prompts,
                setting_to_raise(self.vllm_config),  # type: ignore[attr-defined]
            )


def _is_pruned(request: Any) -> bool:
    arguments = (request.sampling_params.extra_args or {}) if request.sampling_params else {}
    return KEEP in arguments or KEEP_TOKENS in arguments
