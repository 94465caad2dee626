"""Tells the pruner which requests a step starts, and in which order the batch has them.

The first is in the scheduler's output, which a worker of either model runner is handed. The second is settled within
the runner: V1 has it when it builds the attention metadata, V2 when it prepares for that.
"""

import functools
from collections.abc import Callable
from typing import Any

from mmspec.compat import SUPPORTED
from mmspec.patches.configured import is_pruning
from mmspec.patches.patch import Patch


def _pruner(owner: Any, model_of: Callable[[], Any]) -> Any:
    if not is_pruning(owner.vllm_config.additional_config):
        return None
    from mmspec.encoders.fastv.pruner import pruner_of

    return pruner_of(model_of())


def _wrap_step(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def execute_model(self: Any, scheduler_output: Any) -> Any:
        pruner = _pruner(self, self.model_runner.get_model)
        if pruner is None:
            return original(self, scheduler_output)
        pruner.begin(scheduler_output)
        try:
            return original(self, scheduler_output)
        finally:
            pruner.end()

    return execute_model


def _wrap_v1(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _build_attention_metadata(self: Any, *args: Any, **kwargs: Any) -> Any:
        if pruner := _pruner(self, self.get_model):
            pruner.arrange(self.input_batch.req_ids)
        return original(self, *args, **kwargs)

    return _build_attention_metadata


def _wrap_v2(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def prepare_attn(self: Any, input_batch: Any) -> Any:
        if pruner := _pruner(self, self.get_model):
            pruner.arrange(input_batch.req_ids)
        return original(self, input_batch)

    return prepare_attn


_steps_patch = functools.partial(
    Patch,
    upstream="vLLM issues 3394, 20791, 45098 ask for FastV; none for a hook of this kind",
    versions=SUPPORTED,
    remove_when="attention metadata builders are told the requests of the batch, or vLLM prunes by itself",
    lazy=True,
)

BEGIN_STEP = _steps_patch(
    target="vllm.v1.worker.gpu_worker:Worker.execute_model",
    parameters=("self", "scheduler_output"),
    wrap=_wrap_step,
    why="FastV has to know which prompts begin in a step; without `fastv` in the configuration the call goes straight "
    "through",
)
ORDER_V1 = _steps_patch(
    target="vllm.v1.worker.gpu_model_runner:GPUModelRunner._build_attention_metadata",
    parameters=(
        "self",
        "num_tokens",
        "num_reqs",
        "max_query_len",
        "num_tokens_padded",
        "num_reqs_padded",
        "ubatch_slices",
        "logits_indices",
        "max_num_sampled_tokens",
        "use_spec_decode",
        "for_cudagraph_capture",
        "num_scheduled_tokens",
        "slot_mappings",
    ),
    wrap=_wrap_v1,
    why="attention metadata for pruned requests needs the order of the batch, which V1 settles just before; without "
    "`fastv` in the configuration the call goes straight through",
)
ORDER_V2 = _steps_patch(
    target="vllm.v1.worker.gpu.model_runner:GPUModelRunner.prepare_attn",
    parameters=("self", "input_batch"),
    wrap=_wrap_v2,
    why="attention metadata for pruned requests needs the order of the batch, which V2 settles just before; without "
    "`fastv` in the configuration the call goes straight through",
)
