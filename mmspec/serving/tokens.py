"""An answer's tokens with their origin, for a response."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mmspec.serving.trace import Step

_HALF = "\N{REPLACEMENT CHARACTER}"

Decode = Callable[[list[int]], str]


def token_origins(steps: Iterable[Step], token_ids: Sequence[int], decode: Decode) -> list[dict[str, Any]]:
    """A mapping a step: of its `ids` and `texts`, the first `accepted` were drafted, the rest is the target's own.

    Args:
        steps: all passes of the target, in order.
        token_ids: of the answer, which may end before the last step does, at a stop string.
        decode: text of tokens.
    """
    texts = whole_characters(token_ids, decode)
    origins, start = [], 0
    for step in steps:
        end = min(start + step.new, len(token_ids))
        origins.append(
            {
                "drafted": len(step.drafted),
                "accepted": min(step.accepted, end - start),
                "ids": list(token_ids[start:end]),
                "texts": texts[start:end],
                "rejected": step.rejected,
                "rejected_text": decode(step.rejected).strip(_HALF) if step.rejected else "",
            }
        )
        start = end
    return origins


def whole_characters(token_ids: Sequence[int], decode: Decode) -> list[str]:
    """Each token's text; where several make up a character, it is that of the last and the others have none.

    The texts add up to the text of all tokens. A few tokens before are decoded with each, since some tokenizers write
    a token by what comes before it.
    """
    texts = []
    context = read = 0  # tokens before `read` have their text; those from `context` on are decoded again
    for end in range(1, len(token_ids) + 1):
        before = decode(list(token_ids[context:read]))
        text = decode(list(token_ids[context:end]))
        last = end == len(token_ids)
        if len(text) > len(before) and (last or not text.endswith(_HALF)):
            texts.append(text[len(before) :])
            context, read = read, end
        else:
            texts.append("")
    return texts
