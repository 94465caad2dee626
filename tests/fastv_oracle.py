"""The greedy loop of `tests.oracle` with FastV in transformers."""

from pathlib import Path
from typing import Any

from torch import Tensor

from mmspec.bench.fastv_reference import Ranking, Reference, last_token
from tests.oracle import Oracle


def text_behind(weights: Tensor, visual: Tensor, length: int) -> Tensor:
    """What `instruction` ranks by."""
    return weights[:, int(visual[-1]) + 1 : length].mean((0, 1))[visual]


def unrotated(attention: Any) -> Ranking:
    """What `debiased` ranks by: attention of the last token from queries and keys without positions.

    Args:
        attention: the module of layer K-1; what its projections gave last is read.
    """
    seen: dict[str, Tensor] = {}
    for name in ("q_proj", "k_proj"):
        getattr(attention, name).register_forward_hook(
            lambda module, arguments, output, name=name: seen.update({name: output[0]})
        )

    def rank(weights: Tensor, visual: Tensor, length: int) -> Tensor:
        query, keys = (
            seen[name].unflatten(-1, (-1, attention.head_dim)).transpose(0, 1)
            for name in ("q_proj", "k_proj")
        )
        keys = keys.repeat_interleave(attention.num_key_value_groups, dim=0)[:, :length]
        logits = keys @ query[:, length - 1, :, None] * attention.scaling  # [heads, tokens, 1]
        return logits[..., 0].softmax(-1).mean(0)[visual]

    return rank


class FastVOracle(Oracle):
    """A checkpoint whose layers from one on do not see the visual tokens that rank last."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.kept: list[int] = []  # indices in the prompt of the visual tokens that the last answer kept

    def answer(
        self,
        prompt: dict[str, Tensor],
        max_tokens: int,
        *,
        layer: int,
        keep: float,
        ranking: Ranking = last_token,
        **options: Any,
    ) -> list[int]:
        """Greedy tokens."""
        reference = Reference(self.model, layer, keep, ranking, **options)
        with reference.pruning(prompt["input_ids"][0]):
            tokens = self.greedy(prompt, max_tokens)
        self.kept = reference.kept
        return tokens
