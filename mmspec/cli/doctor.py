"""`mmspec doctor`: what works here, and what mends the rest."""

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from mmspec.errors import MmspecError

if TYPE_CHECKING:
    from rich.table import Table

    from mmspec.doctor import Examination

_COLOURS = {"ok": "green", "warning": "yellow", "broken": "red"}


def command(
    mend: Annotated[
        bool, typer.Option("--mend", help="Mend what is broken: broken torch companions, missing metadata.")
    ] = False,
    unmend: Annotated[bool, typer.Option("--unmend", help="Take out every shim that --mend put in.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1.0, help="Seconds that each import may take.")
    ] = 120.0,
) -> int:
    """Says what works in this environment, what is broken, and the command that mends it."""
    if mend and unmend:
        raise MmspecError("--mend and --unmend are opposites: give one of them")
    from mmspec.doctor import examine
    from mmspec.environment import Interpreter, apply, unmend_shims

    # Remarks go to standard error, so that with --json standard output holds the object alone.
    remarks = Console(stderr=True, soft_wrap=True, highlight=False)
    if unmend:
        for file in unmend_shims():
            remarks.print(f"removed {file}", markup=False)

    def said(line: str) -> None:
        remarks.print(line, markup=False)

    said("importing torch, vLLM and their companions, which may take a minute ...")
    examination = examine(timeout=timeout, said=said)
    done = apply(examination.faults, Interpreter()) if mend else []
    if done:
        said("importing them again ...")
        examination = examine(timeout=timeout, said=said)
    for line in done:
        remarks.print(f"mended: {line}", markup=False)
    if as_json:
        print(json.dumps({**examination.to_json(), "mended": done}))
    else:
        Console(highlight=False).print(_table(examination))
    return 0 if examination.healthy else 1


def _table(examination: "Examination") -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in examination.checks:
        detail = Text(check.detail)
        if check.command:
            detail.append("\n→ ").append(check.command, style="bold")
        table.add_row(Text(check.name), Text(check.status, style=_COLOURS[check.status]), detail)
    return table
