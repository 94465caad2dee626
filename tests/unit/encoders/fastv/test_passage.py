"""A forward pass that prunes, on a decoder of a few lines with vLLM's calling conventions."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmspec.encoders.fastv.book import Step
from mmspec.encoders.fastv.passage import Behind, Output, Passage, Ranks
from mmspec.encoders.fastv.rows import arrange
from mmspec.encoders.fastv.scores import CRITERIA
from tests.unit.encoders.fastv.steps import prompt

HIDDEN, LAYERS, PADDING = 8, 4, 3
ALONE = Ranks(lambda tensor: tensor, 1)


class Rotary(nn.Module):
    """Turns queries and keys by their positions, in place as on a GPU; one for all layers."""

    def forward(self, positions: Tensor, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        turn = positions[0, :, None].float().cos()
        return queries.mul_(turn), keys.mul_(turn)


class Attn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.num_heads = self.num_kv_heads = 2
        self.head_size = HIDDEN // 2
        self.impl = SimpleNamespace(scale=0.5)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return values


class Attention(nn.Module):
    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        self.attn, self.rotary_emb = Attn(), rotary

    def forward(self, positions: Tensor, states: Tensor) -> Tensor:
        queries, keys = self.rotary_emb(positions, states.clone(), states.clone())
        out: Tensor = self.attn(queries, keys, states)
        return out


class Layer(nn.Module):
    """Adds its number to every state, and remembers the positions that it was given."""

    def __init__(self, number: int, rotary: Rotary) -> None:
        super().__init__()
        self.number, self.self_attn = number, Attention(rotary)

    def forward(self, positions: Tensor, states: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        residual = states if residual is None else residual + states
        self.positions = positions
        return self.self_attn(positions, residual) * 0 + self.number, residual


def decode(layers: list[Layer], positions: Tensor, states: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Final states, and those in front of each layer."""
    residual, between = None, []
    for layer in layers:
        between.append(states if residual is None else states + residual)
        states, residual = layer(positions, states, residual)
    assert residual is not None
    return states + residual, between


def at_once(layers: list[Layer]) -> Behind:
    """All of `layers` in one call, as when they are compiled."""

    def behind(positions: Tensor, states: Tensor, residual: Tensor) -> list[Output]:
        outputs: list[Output] = []
        for layer in layers:
            states, residual = Layer.forward(layer, positions, states, residual)
            outputs.append((states + residual, None))
        return [*outputs[:-1], (states, residual)]

    return behind


@pytest.mark.parametrize("whole", [False, True], ids=["one by one", "at once"])
@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("first", [1, 2, 3])
def test_dropped_rows_are_gone_in_between_and_back_behind(criterion: str, first: int, whole: bool) -> None:
    rotary = Rotary()
    layers = [Layer(10**number, rotary) for number in range(LAYERS)]
    one, two = prompt(6, [1, 2, 3, 4]), prompt(5, [0, 1], [3])
    step = Step({"a": 2, "b": 6, "c": 5}, {"b": one, "c": two}, {"a": 1, "b": 2, "c": 1})
    rows = arrange(step, ["a", "b", "c"])
    states = torch.randn(13 + PADDING, HIDDEN, generator=torch.Generator().manual_seed(1))
    positions = torch.arange(13 + PADDING).repeat(3, 1)
    kept: dict[int, list[int]] = {}

    def record(prompt: Any, indices: Tensor) -> None:
        kept[prompt.length] = indices.tolist()

    expected, expected_between = decode(layers, positions, states)
    behind = at_once(layers[first:]) if whole else None
    passage = Passage(rows, CRITERIA[criterion], ALONE, record, behind)
    with passage.through(layers, first):
        output = decode(layers, positions, states)
    final, between = passage.restore(output)

    assert [len(kept[6]), len(kept[5])] == [2, 2]
    visual = {2 + i for i in one.visual} | {8 + i for i in two.visual}
    stays = sorted(set(range(13)) - visual | {2 + i for i in kept[6]} | {8 + i for i in kept[5]})
    assert len(stays) == rows.remaining == 10
    gone = sorted(set(range(13 + PADDING)) - set(stays))
    torch.testing.assert_close(final[stays], expected[stays])
    torch.testing.assert_close(final[gone], expected_between[first][gone])
    for number, (found, wanted) in enumerate(zip(between, expected_between, strict=True)):
        torch.testing.assert_close(found[stays], wanted[stays])
        torch.testing.assert_close(found[gone], expected_between[min(number, first)][gone])
    assert [layer.positions.tolist() for layer in layers[first:]] == [[stays] * 3] * (LAYERS - first)
    assert [layer.positions.shape[1] for layer in layers[:first]] == [13 + PADDING] * first


@pytest.mark.parametrize("whole", [False, True], ids=["one by one", "at once"])
def test_hooks_are_gone_behind_the_step_whatever_happened(whole: bool) -> None:
    layers = [Layer(1, Rotary()) for _ in range(LAYERS)]
    behind = at_once(layers[2:]) if whole else None
    step = Step({"a": 6}, {"a": prompt(6, [1, 2])}, {"a": 1})

    with (
        pytest.raises(RuntimeError, match="in between"),
        Passage(arrange(step, ["a"]), CRITERIA["debiased"], ALONE, behind=behind).through(layers, 2),
    ):
        decode(layers, torch.arange(6).repeat(3, 1), torch.randn(6, HIDDEN))
        raise RuntimeError("in between")

    modules = [module for layer in layers for module in layer.modules()]
    assert not any(module._forward_pre_hooks for module in modules)
    assert not any("forward" in vars(layer) for layer in layers)


def test_a_forward_of_a_layers_own_is_there_for_what_is_compiled_and_behind_the_step() -> None:
    """vLLM's weight offloading wraps layers so; what is compiled of it sets `forward` to what it finds when it runs."""
    layers = [Layer(10**number, Rotary()) for number in range(LAYERS)]
    rows = arrange(Step({"a": 6}, {"a": prompt(6, [1, 2])}, {"a": 1}), ["a"])
    positions, states = torch.arange(6).repeat(3, 1), torch.randn(6, HIDDEN)

    def decoded(behind: Behind | None) -> Tensor:
        passage = Passage(rows, CRITERIA["last"], ALONE, behind=behind)
        with passage.through(layers, 2):
            output = decode(layers, positions, states)
        return passage.restore(output)[0]

    expected = decoded(None)
    for layer in layers[2:]:
        offload(layer)
    own = [vars(layer)["forward"] for layer in layers[2:]]
    several = torch.compile(
        through_all(layers[2:]),
        backend="eager",
        fullgraph=True,
        options={"guard_filter_fn": torch.compiler.skip_all_guards_unsafe},
    )
    several(positions[:, :3], states[:3], states[:3])
    for _ in range(2):
        torch.testing.assert_close(decoded(several), expected)
        assert [vars(layer)["forward"] for layer in layers[2:]] == own


def offload(layer: Layer) -> None:
    own = layer.forward

    def forward(*arguments: Any) -> Any:
        vars(layer)["forward"] = own
        output = own(*arguments)
        vars(layer)["forward"] = forward
        return output

    vars(layer)["forward"] = forward


def through_all(layers: list[Layer]) -> Behind:
    def behind(positions: Tensor, states: Tensor, residual: Tensor) -> list[Output]:
        outputs: list[Output] = []
        for layer in layers:
            states, residual = layer(positions, states, residual)
            outputs.append((states, residual))
        return outputs

    return behind
