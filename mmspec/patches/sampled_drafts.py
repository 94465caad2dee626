"""Lets sampled answers keep their distribution under drafting on a CPU.

vLLM 0.32's CPU build spreads each request's temperature, top-k and top-p over its drafted tokens with a kernel that
writes into a converted copy wherever they are not 64-bit integers. The tensor that is read afterwards is
uninitialised memory, so drafted tokens are verified against another distribution than asked for, or against NaN
(vLLM issue 55005).
"""

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from mmspec.compat import SUPPORTED, is_cpu_build
from mmspec.patches.configured import is_configured
from mmspec.patches.patch import Patch

if TYPE_CHECKING:
    from torch import Tensor

_sampling: ContextVar[bool] = ContextVar("_sampling", default=False)  # within a runner that asked for mmspec


def spread(values: "Tensor", ends: "Tensor", tokens: int, replace_from: int, replace_to: int) -> "Tensor":
    """Each request's value for each of its tokens [tokens]; `ends` are running totals of tokens [requests]."""
    import torch  # vLLM has it by now; a process that only loads the plugin may not

    counts = ends.diff(prepend=ends.new_zeros(1))
    values = torch.where(values == replace_from, torch.full_like(values, replace_to), values)
    return values.repeat_interleave(counts, output_size=tokens)


def _wrap_sample(original: Callable[..., Any]) -> Callable[..., Any]:
    on_cpu = is_cpu_build()  # reads package metadata: once, not at every step

    @functools.wraps(original)
    def _sample(self: Any, logits: Any, spec_decode_metadata: Any) -> Any:
        asked = on_cpu and is_configured(self.vllm_config.additional_config)
        token = _sampling.set(asked)
        try:
            return original(self, logits, spec_decode_metadata)
        finally:
            _sampling.reset(token)

    return _sample


def _wrap_expand(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def expand_batch_to_tokens(
        x: "Tensor", cu_num_tokens: "Tensor", num_tokens: int, replace_from: int = 0, replace_to: int = 0
    ) -> Any:
        expand = spread if _sampling.get() else original
        return expand(x, cu_num_tokens, num_tokens, replace_from, replace_to)

    return expand_batch_to_tokens


_WHY = (
    "vLLM's CPU build verifies the drafted tokens of sampled answers with uninitialised memory for temperature, "
    "top-k and top-p, so that their distribution is another one (seen in tests/engine/test_distribution.py)"
)
MARK_SAMPLING = Patch(
    target="vllm.v1.worker.gpu_model_runner:GPUModelRunner._sample",
    parameters=("self", "logits", "spec_decode_metadata"),
    wrap=_wrap_sample,
    why="tells the next patch that the engine asked for mmspec",
    upstream="vLLM issue 55005",
    versions=SUPPORTED,
    remove_when="with the next one",
    lazy=True,
)
SPREAD_SAMPLING = Patch(
    target="vllm.v1.sample.rejection_sampler:expand_batch_to_tokens",
    parameters=("x", "cu_num_tokens", "num_tokens", "replace_from", "replace_to"),
    wrap=_wrap_expand,
    why=_WHY,
    upstream="vLLM issue 55005",
    versions=SUPPORTED,
    remove_when="`_expand_kernel_impl` in `vllm.utils.cpu_triton_utils` writes into the tensor that it was given",
    lazy=True,
)
