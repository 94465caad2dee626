"""Loss of a head's steps, and the acceptance that they would bring."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import torch
from torch.nn import functional

from mmspec.heads.train.unroll import Step


def loss_of(steps: Iterable[Step], wanted: torch.Tensor, decay: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Divergence from the target's distribution, summed over steps of falling weight.

    Args:
        wanted: the target's logits over the draft vocabulary behind each start [starts, draft vocabulary].
        decay: weight of each step relative to the one before.

    Returns:
        The loss, and the head's likeliest token for each start and step [starts, steps], -1 behind the answer's end.
    """
    probabilities = wanted.float().softmax(-1)
    loss = torch.zeros((), device=wanted.device)
    drafted = []
    for number, step in enumerate(steps):
        there = step.wanted >= 0
        logits = step.logits[there].float()
        divergence = functional.kl_div(
            logits.log_softmax(-1), probabilities[step.wanted[there]], reduction="sum"
        )
        loss = loss + decay**number * divergence / max(1, len(logits))
        best = torch.full_like(step.wanted, -1)
        best[there] = logits.argmax(-1)
        drafted.append(best)
    return loss, torch.stack(drafted, dim=-1)


def agreement(drafted: torch.Tensor, said: torch.Tensor, d2t: torch.Tensor | None) -> torch.Tensor:
    """Whether each drafted token is what the target said: 1, 0, or -1 behind the answer's end.

    On greedy answers this is acceptance itself; on sampled ones its expectation is, as a drafted token is accepted
    with the probability that the target gives it.

    Args:
        drafted: draft vocabulary ids [starts, steps], -1 behind the answer's end; the starts of one answer.
        said: the target's token behind each start [starts].
        d2t: offsets from draft to target ids, or None where the vocabularies are one.
    """
    there = drafted >= 0
    ids = drafted.clamp(min=0)
    ids = ids if d2t is None else ids + d2t[ids]
    steps = torch.arange(drafted.shape[1], device=drafted.device)
    rows = torch.arange(len(drafted), device=drafted.device).unsqueeze(1)
    wanted = said[(rows + steps).clamp(max=len(said) - 1)]
    return torch.where(there, (ids == wanted).long(), -1)


def accepted_share(agreed: torch.Tensor) -> list[float]:
    """For each step the share of drafts, one from every start, that are accepted up to it.

    Drafts that the answer's end cuts off before a step are left out there.
    """
    so_far = agreed.clamp(min=0).cumprod(-1)
    there = agreed >= 0
    return (so_far.sum(0) / there.sum(0).clamp(min=1)).tolist()


def answers(starts: torch.Tensor) -> list[slice]:
    """Where each answer's starts lie among all starts, given which rows are [sequences, rows]."""
    sequences, rows = starts.nonzero(as_tuple=True)
    new = (sequences[1:] != sequences[:-1]) | (rows[1:] != rows[:-1] + 1)
    ends = [0, *(new.nonzero()[:, 0] + 1).tolist(), len(rows)]
    return [slice(begin, end) for begin, end in pairwise(ends) if end > begin]


def walk(agreed: Sequence[Sequence[int]]) -> list[int]:
    """Accepted tokens of each draft along one greedy answer, whose rows are its starts in order.

    After a draft of which `a` tokens are accepted, the target adds one of its own, and the next draft starts
    `a + 1` rows on. Drafts may run past the answer's end; what is there counts as not accepted.
    """
    accepted = []
    at = 0
    while at < len(agreed):
        run = 0
        while run < len(agreed[at]) and agreed[at][run] == 1:
            run += 1
        accepted.append(run)
        at += run + 1
    return accepted
