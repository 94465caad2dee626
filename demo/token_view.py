"""The tokens of an answer by where they came from, as HTML."""

from collections.abc import Sequence
from html import escape
from typing import Any

from mmspec.demo.server import Offer

# A colour and a line each (see `style.css`), so that neither colour vision nor colour printing is needed.
_LEGEND = (
    ("drafted", "drafted and accepted"),
    ("target", "from the target itself"),
    ("rejected", "drafted in vain"),
)


def token_view(steps: Sequence[dict[str, Any]]) -> str:
    """The legend, the counts, and each token's text; one group a step of the target.

    Args:
        steps: as `mmspec_stats` of the server gives them.
    """
    body = "".join(_step(number, step) for number, step in enumerate(steps, 1))
    return f"<div class='tokens'>{_legend()}<p class='counts'>{_counts(steps)}</p><div class='text'>{body}</div></div>"


def no_tokens(offer: Offer) -> str:
    """What stands there before the first answer, or where the server does not say."""
    why = (
        "After an answer, its tokens are shown here by where they came from."
        if offer.statistics
        else "This server does not say where tokens came from; start one with mmspec serve."
    )
    return f"<div class='tokens'><p class='counts'>{escape(why)}</p></div>"


def _legend() -> str:
    items = "".join(f"<span class='token {kind}'>{escape(text)}</span>" for kind, text in _LEGEND)
    return f"<p class='legend'>{items}</p>"


def _counts(steps: Sequence[dict[str, Any]]) -> str:
    tokens = sum(len(step["ids"]) for step in steps)
    drafted, accepted = (sum(step[name] for step in steps) for name in ("drafted", "accepted"))
    return f"{tokens} tokens in {len(steps)} steps: {accepted} of {drafted} drafted tokens were accepted"


def _step(number: int, step: dict[str, Any]) -> str:
    accepted = step["accepted"]
    about = f"step {number}: {accepted} of {step['drafted']} drafted accepted"
    drafted, own = step["texts"][:accepted], step["texts"][accepted:]
    pieces = [_token("drafted", text, f"{about}; drafted") for text in drafted]
    if step["rejected_text"]:
        pieces.append(_token("rejected", step["rejected_text"], f"{about}; drafted in vain"))
    pieces += [_token("target", text, f"{about}; from the target") for text in own]
    return f"<span class='step'>{''.join(pieces)}</span>"


def _token(kind: str, text: str, about: str) -> str:
    """Tokens that are a part of a character have no text, and are shown with the one that completes it."""
    return f"<span class='token {kind}' title='{escape(about)}'>{escape(text)}</span>" if text else ""
