"""The layers behind K as vLLM compiles them, for steps that prune. Importing this imports vLLM.

What vLLM compiles of a model has one length for all layers. A step that prunes changes its length in front of layer K,
so it runs the first K layers eager, and these, which are most of the model, compiled apart.
"""

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from vllm.compilation.backends import set_model_tag
from vllm.compilation.decorators import support_torch_compile
from vllm.config import CUDAGraphMode, set_current_vllm_config
from vllm.forward_context import get_forward_context

from mmspec.encoders.fastv.passage import Output

_log = logging.getLogger("vllm.plugins.mmspec")


@support_torch_compile(
    dynamic_arg_dims={"positions": {-1: "tokens"}, "states": {0: "tokens"}, "residual": {0: "tokens"}}
)
class _Layers(nn.Module):
    """Decoder layers one after another, whatever the family: all have these arguments."""

    def __init__(self, *, layers: Sequence[nn.Module], wanted: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.wanted = wanted

    def forward(self, positions: Tensor, states: Tensor, residual: Tensor) -> list[Tensor]:
        """The sum of states and residual behind each layer of `wanted`; behind the last, one and the other."""
        sums: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            states, residual = layer(positions, states, residual)
            if index in self.wanted:
                sums.append(states + residual)  # the next layer's norm may change both where they lie
        return [*sums, states, residual]


class Tail:
    """Compiles once, in the run with which vLLM measures memory or warms up; without one, steps that prune run eager.

    Attributes:
        runs: how many steps have used it.
    """

    def __init__(self, model: Any, first: int, vllm_config: Any) -> None:
        self.runs = 0
        self._inner, self._first, self._vllm_config = model.get_language_model().model, first, vllm_config
        self._compiled: _Layers | None = None
        self._tried = False
        # vLLM's compile cache looks at the sources of what is compiled first, and that is the whole model.
        vllm_config.compilation_config.traced_files.add(__file__)

    @property
    def ready(self) -> bool:
        return self._compiled is not None

    def warm_up(self, positions: Tensor) -> None:
        """Compiles with as many tokens as the run has that vLLM makes without requests, and runs with them."""
        if self._tried:
            return
        context = get_forward_context()
        if context.attn_metadata is not None or context.cudagraph_runtime_mode != CUDAGraphMode.NONE:
            return
        self._tried = True
        try:
            self._compiled = self._compile(positions)
        except Exception as error:
            if self._vllm_config.parallel_config.tensor_parallel_size > 1:
                raise  # the other ranks wait for this one
            _log.warning(
                "mmspec: the layers behind FastV's layer K cannot be compiled apart, so that steps that prune run "
                "eager: %s: %s",
                type(error).__name__,
                next(iter(str(error).splitlines()), ""),
            )
            _log.debug("mmspec: why they cannot", exc_info=True)

    def _compile(self, positions: Tensor) -> _Layers:
        model = self._vllm_config.model_config
        shape = positions.shape[-1], model.hf_text_config.hidden_size
        states = torch.zeros(shape, dtype=model.dtype, device=positions.device)
        # The tag keeps it apart, in vLLM's log and cache, from the whole model and from a draft.
        with set_current_vllm_config(self._vllm_config), set_model_tag("fastv_tail"):
            layers = _Layers(layers=self._inner.layers[self._first :], wanted=self._wanted())
            # In memory of their own, as kept rows are: strides are compiled, too.
            layers(positions.clone(memory_format=torch.contiguous_format), states, states.clone())
        return layers

    def __call__(self, positions: Tensor, states: Tensor, residual: Tensor) -> list[Output]:
        """What each layer gives: the last its own, one that a head reads the sum, and the others what the last does."""
        assert self._compiled is not None
        self.runs += 1
        context = get_forward_context()
        context.skip_compiled, graphs = False, context.cudagraph_runtime_mode
        context.cudagraph_runtime_mode = CUDAGraphMode.NONE  # their lengths are those of whole steps
        try:
            found = self._compiled(positions.contiguous(), states, residual)
        finally:
            context.skip_compiled, context.cudagraph_runtime_mode = True, graphs
        outputs: list[Output] = [(found[-2], found[-1])] * len(self._compiled.layers)
        for place, index in enumerate(self._compiled.wanted):
            outputs[index] = found[place], None
        return outputs

    def _wanted(self) -> tuple[int, ...]:
        """Layers behind which an EAGLE-3 head reads the states."""
        read = getattr(self._inner, "aux_hidden_state_layers", ())
        last = len(self._inner.layers) - self._first - 1
        return tuple(index for index in range(last) if self._first + index + 1 in read)
