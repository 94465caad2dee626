"""The reduced vocabulary of a head: the tokens that its target says most often."""

from collections import Counter

import torch
from speculators.train.vocab_mapping import build_vocab_mappings_from_distribution

from mmspec.errors import MmspecError
from mmspec.heads.train.batches import Samples


def draft_vocabulary(
    samples: Samples, draft_size: int, target_size: int
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """The mappings between the vocabularies, counted on the target's answers.

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
    for index in range(len(samples)):
        sample = samples[index]
        ids, mask = sample["input_ids"], sample["loss_mask"]
        assert ids is not None and mask is not None
        counts.update(ids[mask.bool()].tolist())
    if not counts:
        raise MmspecError("no sample has an answer to learn from; capture some with `mmspec head capture`")
    d2t, t2d = build_vocab_mappings_from_distribution(dict(counts), draft_size, target_size)
    covered = sum(count for token, count in counts.items() if t2d[token]) / counts.total()
    return d2t, t2d, covered
