"""One forward pass that prunes: hooks on the decoder's layers, there only while it lasts."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mmspec.encoders.device import to_device
from mmspec.encoders.fastv.prompt import Prompt
from mmspec.encoders.fastv.rows import Rows
from mmspec.encoders.fastv.scores import Criterion, Sight, choose

Recorder = Callable[[Prompt, Tensor], None]
"""Is told, for each pruned prompt, which tokens of it stay: all of the text, and the kept visual ones."""
Output = tuple[Tensor, Tensor | None]
"""States and residual behind a layer, or their sum and nothing."""
Forward = Callable[..., Output]
Behind = Callable[[Tensor, Tensor, Tensor], list[Output]]
"""All layers from K on at once: positions, states and residual give the outputs of each."""


@dataclass(frozen=True)
class Ranks:
    """How sums are taken over the ranks of tensor parallelism, and how many there are."""

    add: Callable[[Tensor], Tensor]
    count: int


class Passage:
    """Takes the dropped tokens out between two layers, and puts them back behind the last."""

    def __init__(
        self,
        rows: Rows,
        criterion: Criterion,
        ranks: Ranks,
        record: Recorder | None = None,
        behind: Behind | None = None,
    ) -> None:
        self._rows, self._criterion, self._ranks, self._record = rows, criterion, ranks, record
        self._behind = behind
        self._kept: Tensor | None = None  # rows of the batch that go on, ascending
        self._positions: Tensor | None = None
        self._before: Tensor | None = None  # the states in front of layer K  # [rows with padding, hidden]

    @contextmanager
    def through(self, layers: Sequence[nn.Module], first: int) -> Iterator[None]:
        """The decoder's layers with hooks; from layer `first` on they see only what is kept."""
        attention: Any = layers[first - 1].self_attn
        with ExitStack() as hooks:

            def add(handle: Any) -> None:
                hooks.callback(handle.remove)

            if self._criterion.rotary:
                add(attention.attn.register_forward_pre_hook(self._look(attention)))
            else:
                add(attention.register_forward_pre_hook(self._look_ahead_of_rotary(attention, add)))
            if self._behind is not None:
                hooks.enter_context(self._standing_in(layers[first:], self._behind))
            else:
                add(layers[first].register_forward_pre_hook(self._enter))
                for layer in layers[first + 1 :]:
                    add(layer.register_forward_pre_hook(self._follow))
            yield

    @contextmanager
    def _standing_in(self, layers: Sequence[nn.Module], behind: Behind) -> Iterator[None]:
        """The first of `layers` runs all of them at once, the others hand out what came of it."""
        outputs: list[Output] = []
        own = [vars(layer).get("forward") for layer in layers]  # vLLM's weight offloading puts one there

        def first(*arguments: Any) -> Output:
            # Offloading sets `forward` within the call, and what is compiled of that sets what was found there.
            _set_forwards(layers, own)
            outputs[:] = behind(*self._enter(layers[0], arguments))
            _set_forwards(layers, [own[0], *(hands_out(index) for index in range(1, len(layers)))])
            return outputs[0]

        def hands_out(index: int) -> Forward:
            return lambda *arguments: outputs[index]

        _set_forwards(layers, [first, *own[1:]])
        try:
            yield
        finally:
            _set_forwards(layers, own)

    def restore(self, output: Any) -> Any:
        """The model's output with a row for each token again: dropped ones keep their states in front of layer K.

        Args:
            output: final states, or these and a list of those of several layers, in full behind which nothing was
                dropped yet.
        """
        if isinstance(output, tuple):
            states, between = output
            return self._spread(states), [self._spread(one) for one in between]
        return self._spread(output)

    def _spread(self, states: Tensor) -> Tensor:
        assert self._kept is not None and self._before is not None
        if states.shape[0] == self._before.shape[0]:
            return states
        return self._before.to(states.dtype).index_copy(0, self._kept, states)

    def _look(self, attention: Any) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        """Scores the prompts by what `attention.attn` is called with: queries and keys behind rotary embedding."""

        def hook(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            self._decide(attention, arguments[0], arguments[1])

        return hook

    def _look_ahead_of_rotary(
        self, attention: Any, add: Callable[[Any], None]
    ) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        """The same from what `attention.rotary_emb` is called with, a module that all layers share."""

        def hook(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            if self._kept is None:
                self._decide(attention, arguments[1], arguments[2])

        def begin(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            add(attention.rotary_emb.register_forward_pre_hook(hook))

        return begin

    def _decide(self, attention: Any, queries: Tensor, keys: Tensor) -> None:
        attn = attention.attn
        queries = queries.unflatten(-1, (attn.num_heads, attn.head_size)) if queries.ndim == 2 else queries
        keys = keys.unflatten(-1, (attn.num_kv_heads, attn.head_size)) if keys.ndim == 2 else keys
        chosen = [to_device(torch.from_numpy(self._rows.certain), keys.device)]
        for start, prompt in self._rows.prompts:
            own = slice(start, start + prompt.length)
            scale = attn.impl.scale
            sight = Sight(prompt, queries[own], keys[own], scale, self._ranks.add, self._ranks.count)
            stays = sight.visual[choose(self._criterion.score(sight), prompt)]
            chosen.append(start + stays)
            if self._record is not None:
                self._record(prompt, stays.sort().values)
        self._kept = torch.cat(chosen).sort().values

    def _enter(self, layer: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Layer K: of states and residual only the kept rows go on."""
        positions, states, residual, *rest = arguments
        assert self._kept is not None
        self._before = states + residual
        self._positions = positions[..., self._kept]
        return self._positions, states[self._kept], residual[self._kept], *rest

    def _follow(self, layer: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Later layers: the states are short already, and the decoder still hands on all positions."""
        _, *rest = arguments
        return self._positions, *rest


def _set_forwards(layers: Sequence[nn.Module], forwards: Sequence[Forward | None]) -> None:
    """None leaves a layer the one of its class."""
    for layer, forward in zip(layers, forwards, strict=True):
        if forward is None:
            vars(layer).pop("forward", None)
        else:
            vars(layer)["forward"] = forward
