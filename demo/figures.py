"""The live line under the chat: what an answer costs, in figures."""

from html import escape
from typing import Any

from mmspec.demo.answers import Answer
from mmspec.demo.server import Offer

_TIERS = {
    "prefix": "prompt cache",
    "device": "engine's cache",
    "host": "host memory",
    "disk": "disk",
    "remote": "remote cache",
}


def live_line(answer: Answer, offer: Offer, *, done: bool) -> str:
    """The line as HTML, while the answer comes in or when it is there."""
    figures = [*_times(answer), *_statistics(answer.statistics)]
    if done and answer.refusal is None and answer.statistics is None:
        figures.append(("", _why_none(answer, offer)))
    if answer.stopped:
        figures.append(("", "stopped"))
    if not figures:
        return "" if done else as_line([("", "waiting for the first token …")])
    return as_line(figures)


def as_line(figures: list[tuple[str, str]]) -> str:
    """Names and values as one line of HTML."""
    cells = [
        f"<span class='figure'>{escape(name)} <b>{escape(value)}</b></span>"
        if name
        else f"<span class='figure'>{escape(value)}</span>"
        for name, value in figures
    ]
    return f"<div class='live' role='status'>{''.join(cells)}</div>"


def _times(answer: Answer) -> list[tuple[str, str]]:
    figures = []
    if answer.ttft is not None:
        figures.append(("first token", milliseconds(answer.ttft)))
        figures.append(("tokens", str(answer.tokens)))
    if (speed := answer.tokens_per_second) is not None:
        figures.append(("tokens/s", f"{speed:.1f}"))
    return figures


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 10 else f"{seconds:.1f} s"


def _statistics(stats: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Figures that only the server knows."""
    if stats is None:
        return []
    figures = [("acceptance length", acceptance(stats))]
    cache, visual = stats["encoder_cache"], stats["visual_tokens"]
    if visual["seen"]:
        figures.append(("pictures", _cache(cache)))
        figures.append(("visual tokens kept", f"{visual['kept']} of {visual['seen']}"))
    return figures


def acceptance(stats: dict[str, Any]) -> str:
    """Tokens a step that drafted, the target's own included."""
    if not stats["drafts"]:
        return "1.00, nothing was drafted"
    return f"{stats['mean_acceptance_length']:.2f}"


def _cache(cache: dict[str, Any]) -> str:
    if cache["hits"] is None:
        return "–"
    parts = []
    if cache["hits"]:
        parts.append(f"{cache['hits']} cached ({_TIERS.get(cache['tier'], cache['tier'])})")
    if cache["misses"]:
        parts.append(f"{cache['misses']} encoded")
    return ", ".join(parts) or "none"


def _why_none(answer: Answer, offer: Offer) -> str:
    if answer.stopped:
        return "no statistics of a stopped answer"
    if offer.statistics:
        return "the server sent no statistics"
    return "this server runs without mmspec: no statistics of drafts, caches and pruning"
