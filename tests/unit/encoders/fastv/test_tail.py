"""The layers behind K at once: when they are compiled, what they hand out, and what follows when they cannot be."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

FIRST, HIDDEN, TOKENS = 1, 8, 5
READ = (0, 1, 2, 4)  # the layers in front of which a head reads the states; of four, 4 is behind the last


class Layer(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.calls = number, 0

    def forward(self, positions: Tensor, states: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        return states * 0 + self.number, states + residual


class Broken(nn.Module):
    def forward(self, *arguments: Tensor) -> tuple[Tensor, Tensor]:
        raise RuntimeError("an operator is missing\nand here are forty lines about it")


def tail_of(layers: list[nn.Module], ranks: int = 1) -> Any:
    """The tail in an engine with vLLM's compilation off, so that all runs but vLLM's compiler."""
    from vllm.config import CompilationMode

    from mmspec.encoders.fastv.tail import Tail

    inner = SimpleNamespace(layers=nn.ModuleList(layers), aux_hidden_state_layers=READ)
    model = SimpleNamespace(get_language_model=lambda: SimpleNamespace(model=inner))
    config = SimpleNamespace(
        compilation_config=SimpleNamespace(mode=CompilationMode.NONE, traced_files=set()),
        parallel_config=SimpleNamespace(tensor_parallel_size=ranks),
        model_config=SimpleNamespace(dtype=torch.float32, hf_text_config=SimpleNamespace(hidden_size=HIDDEN)),
    )
    return Tail(model, FIRST, config)


@contextmanager
def forward_context(metadata: Any = None, graphs: str = "NONE") -> Iterator[Any]:
    from vllm.config import CUDAGraphMode
    from vllm.forward_context import override_forward_context

    context: Any = SimpleNamespace(
        attn_metadata=metadata, cudagraph_runtime_mode=CUDAGraphMode[graphs], skip_compiled=False
    )
    with override_forward_context(context):
        yield context


def test_each_layer_gives_what_is_read_of_it() -> None:
    from vllm.config import CUDAGraphMode

    layers = [Layer(number) for number in range(4)]
    tail = tail_of([*layers])
    with forward_context():
        tail.warm_up(torch.arange(TOKENS).repeat(3, 1))
    positions, states, residual = torch.arange(3).repeat(3, 1), torch.randn(3, HIDDEN), torch.randn(3, HIDDEN)
    seen = []
    layers[FIRST].register_forward_pre_hook(
        lambda *_: seen.append((context.skip_compiled, context.cudagraph_runtime_mode))
    )
    with forward_context({"layer": "metadata"}, "PIECEWISE") as context:
        context.skip_compiled = True
        second, third, last = tail(positions, states, residual)

    assert seen == [(False, CUDAGraphMode.NONE)]
    assert (context.skip_compiled, context.cudagraph_runtime_mode) == (True, CUDAGraphMode.PIECEWISE)
    torch.testing.assert_close(second, (1 + states + residual, None))
    torch.testing.assert_close(third, last)  # nobody looks at it
    torch.testing.assert_close(last, (torch.full_like(states, 3), 1 + 2 + states + residual))
    assert tail.runs == 1


def test_it_is_compiled_once_and_without_requests() -> None:
    layers = [Layer(number) for number in range(4)]
    tail = tail_of([*layers])
    positions = torch.arange(TOKENS)
    for metadata, graphs in (({}, "NONE"), (None, "PIECEWISE")):
        with forward_context(metadata, graphs):
            tail.warm_up(positions)
    assert not tail.ready
    for _ in range(2):
        with forward_context():
            tail.warm_up(positions)
    assert tail.ready
    assert [layer.calls for layer in layers] == [0, 1, 1, 1]


def test_what_cannot_be_compiled_is_told_in_a_line_and_tried_once(caplog: pytest.LogCaptureFixture) -> None:
    tail = tail_of([Layer(0), Broken()])
    with caplog.at_level(logging.INFO, "vllm.plugins.mmspec"), forward_context():
        tail.warm_up(torch.arange(TOKENS))
        tail.warm_up(torch.arange(TOKENS))
    assert not tail.ready
    (record,) = caplog.records
    assert record.exc_info is None
    assert record.getMessage().endswith("run eager: RuntimeError: an operator is missing")


def test_a_rank_that_cannot_compile_does_not_leave_the_others_waiting() -> None:
    tail = tail_of([Layer(0), Broken()], ranks=2)
    with forward_context(), pytest.raises(RuntimeError, match="an operator is missing"):
        tail.warm_up(torch.arange(TOKENS))


def test_the_compile_cache_sees_its_source() -> None:
    from mmspec.encoders.fastv import tail

    assert tail_of([Layer(0), Layer(1)])._vllm_config.compilation_config.traced_files == {tail.__file__}
