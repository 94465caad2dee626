"""What ranks visual tokens. Every criterion does work in proportion to the prompt's length, never to its square."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mmspec.encoders.device import to_device
from mmspec.encoders.fastv.prompt import Prompt

_MOST_QUERIES = 64  # of the text behind the pictures that `instruction` averages over
_PIVOTS = 8  # tokens that `diverse` compares the others with
_BEST = 2.0  # above any cosine


def _alone(total: Tensor) -> Tensor:
    return total


@dataclass(frozen=True)
class Sight:
    """What layer K-1 computes of one prompt, on one rank of tensor parallelism.

    Attributes:
        prompt: whose it is.
        queries: with or without rotary embedding, as the criterion wants them  # [length, heads, head size]
        keys: likewise  # [length, key-value heads, head size]
        scale: factor of attention logits.
        sum_ranks: adds up a tensor over the ranks, which hold different heads.
        ranks: how many there are.
    """

    prompt: Prompt
    queries: Tensor
    keys: Tensor
    scale: float
    sum_ranks: Callable[[Tensor], Tensor] = _alone
    ranks: int = 1

    @cached_property
    def visual(self) -> Tensor:
        """Indices of the visual tokens in the prompt  # [seen]"""
        return to_device(torch.from_numpy(self.prompt.visual), self.keys.device)


@dataclass(frozen=True)
class Criterion:
    """A way to rank visual tokens.

    Attributes:
        score: higher goes on first  # [seen], float32
        rotary: queries and keys are wanted with their rotary embedding.
        source: where it was published, and what it does.
    """

    score: Callable[[Sight], Tensor]
    rotary: bool
    source: str


def attention_received(sight: Sight, first: int) -> Tensor:
    """Attention that visual tokens receive, averaged over heads and over the queries from index `first` on  # [seen]"""
    length, heads, _ = sight.queries.shape
    queries = sight.queries[first:].float().unflatten(1, (sight.keys.shape[1], -1))
    logits = torch.einsum("mkgd,nkd->kgmn", queries, sight.keys.float()) * sight.scale
    index = torch.arange(length, device=logits.device)
    logits = logits.masked_fill(index > index[first:, None], float("-inf"))
    received = logits.softmax(-1)[..., sight.visual]
    return sight.sum_ranks(received.sum((0, 1, 2))) / (heads * sight.ranks * (length - first))


def _last(sight: Sight) -> Tensor:
    return attention_received(sight, sight.prompt.length - 1)


def _instruction(sight: Sight) -> Tensor:
    behind = int(sight.prompt.visual[-1]) + 1
    first = max(behind, sight.prompt.length - _MOST_QUERIES)
    return attention_received(sight, min(first, sight.prompt.length - 1))


def _diverse(sight: Sight) -> Tensor:
    keys = sight.keys[sight.visual].float().flatten(1)  # [seen, key-value heads × head size]
    squares = sight.sum_ranks(keys.square().sum(-1))
    pivots = squares.topk(min(_PIVOTS, len(squares))).indices
    products = sight.sum_ranks(keys @ keys[pivots].T)  # [seen, pivots]
    lengths = squares.sqrt().clamp_min(torch.finfo(torch.float32).tiny)
    resemblance = (products / lengths[:, None] / lengths[pivots]).amax(-1)
    # The pivots themselves stay, the longest first, as far as the budget goes.
    return (-resemblance).index_copy(0, pivots, _BEST + lengths[pivots] / lengths.amax())


def _random(sight: Sight) -> Tensor:
    generator = torch.Generator().manual_seed(sight.prompt.seed)
    return to_device(torch.rand(sight.prompt.seen, generator=generator), sight.keys.device)


CRITERIA = {
    "last": Criterion(
        _last, True, "FastV, arXiv 2403.06764: attention of the prompt's last token, mean over heads"
    ),
    "instruction": Criterion(
        _instruction,
        True,
        f"mean attention of the text behind the last picture, of its last {_MOST_QUERIES} tokens at most",
    ),
    "debiased": Criterion(
        _last,
        False,
        "FEATHER, arXiv 2412.13180: attention of the last token without rotary embedding, whose decay over distance "
        "makes FastV favour the bottom of a picture",
    ),
    "diverse": Criterion(
        _diverse,
        False,
        f"after DART, arXiv 2502.11494: the {_PIVOTS} tokens with the longest keys, and those least like them",
    ),
    "random": Criterion(_random, True, "drawn by lot, the same for the same prompt"),
}


def choose(scores: Tensor, prompt: Prompt) -> Tensor:
    """Which of the prompt's visual tokens stay, as indices among them, in no order  # [kept]"""
    chosen, start = [], 0
    for size, kept in prompt.quotas:
        chosen.append(start + scores[start : start + size].topk(kept, sorted=False).indices)
        start += size
    return torch.cat(chosen)
