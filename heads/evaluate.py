"""Acceptance of a head along a target's answers, simulated offline: what an engine would accept, without one."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Acceptance:
    """Over all drafts.

    Attributes:
        mean_acceptance_length: tokens per verification, the bonus token included.
        accepted_per_position: share of drafts whose 1st, 2nd, ... token was accepted.
        drafts: how many.
    """

    mean_acceptance_length: float
    accepted_per_position: list[float]
    drafts: int

    @classmethod
    def of(cls, accepted: Sequence[int], tokens: int) -> "Acceptance":
        """From the number of accepted tokens of each draft of up to `tokens`."""
        drafts = len(accepted)
        shares = [sum(a > position for a in accepted) / max(1, drafts) for position in range(tokens)]
        return cls(mean_acceptance_length(sum(accepted), drafts), shares, drafts)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def mean_acceptance_length(accepted: int, drafts: int) -> float:
    """Tokens per verification, the bonus token included; 1.0 where nothing was drafted."""
    return 1.0 + accepted / drafts if drafts else 1.0


def simulate(
    head: Path, target: Path, samples: Iterable[tuple[str, dict[str, Any]]], tokens: int
) -> dict[str, Acceptance]:
    """Walks along each captured answer as the engine would, drafting `tokens` a step.

    Args:
        samples: the kind of each, and the sample as `mmspec.heads.capture` reads it; greedy answers, or sampled
            ones, where acceptance is right in expectation.

    Returns:
        By kind.
    """
    import torch

    from mmspec.heads.train.batches import collate
    from mmspec.heads.train.load import load_head
    from mmspec.heads.train.scores import agreement, answers, loss_of, walk
    from mmspec.heads.train.unroll import targets, unroll

    model, config = load_head(head, target)
    d2t = model.d2t if model.use_draft_vocab else None
    accepted: dict[str, list[int]] = defaultdict(list)
    for kind, sample in samples:
        with torch.no_grad():
            batch = collate([sample], config.vision == "features", config.positions == "mrope", torch.float32)
            if not batch.starts.any():
                continue
            wanted, said = targets(model, batch)
            _, drafted = loss_of(unroll(model, batch, tokens), wanted, 1.0)
        for part in answers(batch.starts):
            accepted[kind] += walk(agreement(drafted[part], said[part], d2t).tolist())
    return {kind: Acceptance.of(found, tokens) for kind, found in accepted.items()}
