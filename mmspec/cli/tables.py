"""Results as tables for people."""

from collections.abc import Iterator
from typing import Any

from rich.table import Table


def answer_table(result: dict[str, Any]) -> Table:
    """The statistics of one answer: the same figures as its JSON object."""
    cache, visual = result["encoder_cache"], result["visual_tokens"]
    table = _plain_table()
    table.add_row("tokens", str(len(result["token_ids"])))
    table.add_row(
        "mean acceptance length", f"{result['mean_acceptance_length']:.2f} tokens a step that drafted"
    )
    table.add_row(
        "drafted, accepted",
        f"{result['draft_tokens']}, {result['accepted_tokens']} in {result['drafts']} drafts",
    )
    table.add_row("accepted per position", " ".join(map(str, result["accepted_per_position"])) or "-")
    table.add_row("time to first token", _milliseconds(result["ttft_ms"]))
    table.add_row("time per later token", _milliseconds(result["tpot_ms"]))
    table.add_row("encoder cache", f"{_known(cache['hits'])} hits, {_known(cache['misses'])} misses")
    table.add_row("visual tokens", f"{_known(visual['seen'])} seen, {_known(visual['kept'])} kept")
    if "output_matches_baseline" in result:
        table.add_row("same without drafting", "yes" if result["output_matches_baseline"] else "NO")
    return table


def lossless_table(result: dict[str, Any]) -> Table:
    """The verdict of `mmspec bench lossless`."""
    table = _plain_table()
    table.add_row("identical", "yes" if result["identical"] else "NO")
    table.add_row("methods", ", ".join(result["methods"]))
    table.add_row("prompts", str(result["prompts"]))
    for mismatch in result["mismatches"]:
        table.add_row(
            f"differs: {mismatch['method']}", f"{mismatch['prompt']}, from token {mismatch['position']} on"
        )
    return table


def nested_table(result: dict[str, Any]) -> Table:
    """Figures by name, those within others as `outer inner`."""
    table = _plain_table()
    for name, value in _flat(result, ""):
        table.add_row(name, value)
    return table


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{name} {key}".strip())
    elif isinstance(value, list | tuple):
        yield name, " ".join(_figure(one) for one in value)
    else:
        yield name, _figure(value)


def _figure(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _plain_table() -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column()
    return table


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"


def _known(value: int | None) -> str:
    return "unknown" if value is None else str(value)
