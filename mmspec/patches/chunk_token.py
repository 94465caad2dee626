"""Lets EAGLE read on where a prompt is cut into chunks.

An EAGLE draft reads at each place the token after it. At the end of a chunk that is the next chunk's first token,
which the prompt has; vLLM 0.32's V1 runner gives it the prompt's last token instead, and the draft's KV for that
place stays wrong, in the prefix cache too. The V2 runner gives it the right one.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mmspec.compat import SUPPORTED
from mmspec.patches.configured import is_configured
from mmspec.patches.patch import Patch


def _wrap(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def propose_draft_token_ids(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_configured(self.vllm_config.additional_config):
            return original(self, scheduler_output, *args, **kwargs)
        with _prompts_end_after_next_token(self, scheduler_output.num_scheduled_tokens):
            return original(self, scheduler_output, *args, **kwargs)

    return propose_draft_token_ids


@contextmanager
def _prompts_end_after_next_token(runner: Any, scheduled: dict[str, int]) -> Iterator[None]:
    """Shortens, for the runner, each prompt that goes on in a later chunk: it takes the last token it knows."""
    batch = runner.input_batch
    lengths = batch.num_tokens_no_spec[: batch.num_reqs]
    before = lengths.copy()
    for row, name in enumerate(batch.req_ids):
        if runner.discard_request_mask.np[row]:
            lengths[row] = batch.num_computed_tokens_cpu[row] + scheduled[name] + 1
    try:
        yield
    finally:
        lengths[:] = before


NEXT_PROMPT_TOKEN = Patch(
    target="vllm.v1.worker.gpu_model_runner:GPUModelRunner.propose_draft_token_ids",
    parameters=(
        "self",
        "scheduler_output",
        "sampled_token_ids",
        "sampling_metadata",
        "hidden_states",
        "sample_hidden_states",
        "aux_hidden_states",
        "spec_decode_metadata",
        "common_attn_metadata",
        "slot_mappings",
    ),
    wrap=_wrap,
    why="at the end of a prefill chunk an EAGLE draft is given the prompt's last token for the next one, in V1, "
    "and its KV of that place stays wrong",
    upstream="none known",
    versions=SUPPORTED,
    remove_when="V1 takes the token behind the chunk (`prepare_next_token_ids_padded`), or V1 is gone",
    lazy=True,
)
