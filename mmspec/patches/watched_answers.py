"""Follows the answers of a server for the statistics that their requests asked for.

vLLM's server reads from the engine's outputs what goes into a response, and drops the rest: of a stream's outputs the
scheduler's report and most of the metrics.
"""

import functools
from collections.abc import Callable
from typing import Any

from mmspec.compat import SUPPORTED
from mmspec.patches.configured import is_configured
from mmspec.patches.patch import Patch


def _wrap(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def generate(self: Any, prompt: Any, sampling_params: Any, request_id: str, **kwargs: Any) -> Any:
        if not is_configured(self.vllm_config.additional_config):
            return original(self, prompt, sampling_params, request_id, **kwargs)
        from vllm.sampling_params import RequestOutputKind

        from mmspec.serving.watch import watch

        if (watched := watch(self, sampling_params)) is None:
            return original(self, prompt, sampling_params, request_id, **kwargs)
        outputs = original(self, prompt, sampling_params, request_id, **kwargs)
        return watched.follow(outputs, delta=sampling_params.output_kind == RequestOutputKind.DELTA)

    return generate


WATCH_ANSWER = Patch(
    target="vllm.v1.engine.async_llm:AsyncLLM.generate",
    parameters=(
        "self",
        "prompt",
        "sampling_params",
        "request_id",
        "prompt_text",
        "lora_request",
        "tokenization_kwargs",
        "trace_headers",
        "priority",
        "data_parallel_rank",
        "session_id",
        "kv_hints",
        "reasoning_ended",
        "reasoning_parser_kwargs",
    ),
    wrap=_wrap,
    why="a response of the server has no place for most of what is known about a request, and a stream for none of it; "
    "requests that ask for no statistics get vLLM's own generator",
    upstream="none: per-request metrics are those of vLLM alone, and end a stream only with its usage",
    versions=SUPPORTED,
    remove_when="vLLM's server lets plugins add to responses what the engine's outputs hold",
    lazy=True,
)
