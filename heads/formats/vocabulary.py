"""The head's reduced vocabulary: `d2t` and `t2d`, two spellings of one list of the target's tokens.

`d2t` holds offsets in every format (vLLM 0.32 `Eagle3LlamaForCausalLM.compute_logits`, speculators 0.9
`train/vocab_mapping.py`, EAGLE): the target's id of draft token i is `i + d2t[i]`. `t2d` is a mask over the target's
vocabulary.
"""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def drafted_tokens(d2t: Array) -> Array:
    """The target's ids of the head's tokens, in the order of the head's output rows: [draft vocabulary]."""
    ids: Array = d2t.astype(np.int64) + np.arange(len(d2t))
    return ids


def offsets(tokens: Array) -> Array:
    """`d2t` of the target's ids, given in the order of the head's output rows."""
    d2t: Array = tokens.astype(np.int64) - np.arange(len(tokens))
    return d2t


def mask(tokens: Array, target_vocabulary: int) -> Array:
    """`t2d` of the target's ids: [target vocabulary]."""
    t2d = np.zeros(target_vocabulary, dtype=bool)
    t2d[tokens] = True
    return t2d


def inconsistency(d2t: Array | None, t2d: Array | None, target_vocabulary: int) -> str | None:
    """What is wrong with the two, or None.

    Args:
        target_vocabulary: rows of the target's embedding, which its configuration calls `vocab_size`.
    """
    if t2d is not None and len(t2d) != target_vocabulary:
        return f"t2d has {len(t2d)} entries for a target vocabulary of {target_vocabulary}"
    if d2t is None:
        return None
    if t2d is not None and d2t.any() and np.array_equal(np.flatnonzero(t2d), d2t):
        return "d2t holds token ids, as t2d shows, instead of offsets"
    tokens = drafted_tokens(d2t)
    if len(tokens) and not 0 <= tokens.min() <= tokens.max() < target_vocabulary:
        wrong = tokens[(tokens < 0) | (tokens >= target_vocabulary)][0]
        return f"d2t leads to token {wrong}, outside the target's vocabulary of {target_vocabulary}"
    if not bool((np.diff(tokens) > 0).all()):
        return "d2t leads to tokens that are not ascending"
    if t2d is not None and not np.array_equal(np.flatnonzero(t2d), tokens):
        return f"d2t and t2d name different tokens ({len(tokens)} and {int(np.count_nonzero(t2d))})"
    return None
