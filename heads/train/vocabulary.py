"""The reduced vocabulary of a head: the tokens that its target says most often."""

from collections import Counter
from collections.abc import Iterable

import torch
from speculators.train.vocab_mapping import build_vocab_mappings_from_distribution

from mmspec.errors import MmspecError


def draft_vocabulary(
    answers: Iterable[torch.Tensor], draft_size: int, target_size: int
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """The mappings between the vocabularies, counted on the target's answers.

    Args:
        answers: token ids of each [tokens].

    Returns:
        d2t: offsets, target id = draft id + d2t [draft vocabulary], int64.
        t2d: whether the head can say a token [target vocabulary], bool.
        covered: share of the answers' tokens that the head can say.
    """
    if draft_size > target_size:
        raise MmspecError(
            f"a draft vocabulary of {draft_size} tokens is larger than the target's; give at most {target_size}"
        )
    counts: Counter[int] = Counter()
    for answer in answers:
        counts.update(answer.tolist())
    if not counts:
        raise MmspecError("no sample has an answer to learn from; capture some with `mmspec head capture`")
    d2t, t2d = build_vocab_mappings_from_distribution(dict(counts), draft_size, target_size)
    covered = sum(count for token, count in counts.items() if t2d[token]) / counts.total()
    return d2t, t2d, covered
