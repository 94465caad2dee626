"""What `mmspec cache` shows to people: the same as its JSON."""

import time
from typing import Any

from rich.table import Table

from mmspec.encoders.cache.catalog import Record
from mmspec.encoders.cache.sizes import format_size


def stats_table(result: dict[str, Any]) -> Table:
    """The folder's totals, then each model's share with its plan."""
    rows = [
        ("folder", result["directory"]),
        ("entries", str(result["entries"])),
        ("size", format_size(result["bytes"])),
        ("evicted so far", str(result["evictions"])),
        ("found damaged so far", str(result["corrupt"])),
    ]
    for model in result["models"]:
        name = f"{model['model'] or 'unnamed'} ({model['encoder']})"
        rows.append((name, f"{model['entries']} pictures, {format_size(model['file_bytes'])}"))
        for what, amount in model.get("plan", {}).items():
            shown = str(amount) if what == "device_embeddings" else format_size(amount)
            rows.append(
                (f"  {result['images']} pictures: {what.replace('_', ' ').removesuffix(' bytes')}", shown)
            )
    return plain_table(*rows)


def list_table(records: list[Record]) -> Table:
    """A line an entry."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("name", "model", "features", "size", "last used"):
        table.add_column(column, overflow="fold")
    for record in records:
        features = f"{record.dtype} {'×'.join(map(str, record.shape))}"
        ago = f"{_ago(time.time() - record.used / 1e9)} ago"
        table.add_row(record.key.name[:16], record.key.model, features, format_size(record.bytes), ago)
    return table


def _ago(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def plain_table(*rows: tuple[str, str]) -> Table:
    """Names and values."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
