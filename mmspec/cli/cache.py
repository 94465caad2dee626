"""`mmspec cache`: the vision-feature cache on the disk, beside running engines or without any."""

import json as json_module
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from mmspec.cli.options import Json
from mmspec.errors import MmspecError

if TYPE_CHECKING:
    from rich.table import Table

    from mmspec.encoders.cache import FolderTier
    from mmspec.encoders.cache.catalog import Record

app = typer.Typer(help="The vision-feature cache on the disk.", no_args_is_help=True)

_UNBOUNDED = 1 << 62  # nothing is stored from here, so no limit is known or needed

_Directory = Annotated[
    Path | None,
    typer.Option("--directory", help="Folder of the cache.", show_default="the user's cache folder"),
]


@app.command()
def stats(
    directory: _Directory = None,
    plan: Annotated[
        int | None, typer.Option(min=1, metavar="IMAGES", help="Say what so many pictures cost in each tier.")
    ] = None,
    json: Json = False,
) -> None:
    """Say what the cache holds, for which models, and with --plan what more pictures will take."""
    from mmspec.cli.cache_tables import stats_table
    from mmspec.encoders.cache.plan import by_model
    from mmspec.encoders.cache.plan import plan as planned

    with _opened(directory) as tier:
        uses = by_model(tier.records())
        totals = tier.totals()
        if plan is not None and not uses:
            raise MmspecError(f"cache: {tier.folder} is empty, and --plan needs entries to reckon from")
        models: list[dict[str, Any]] = [asdict(use) for use in uses]
        if plan is not None:
            models = [{**asdict(use), "plan": planned(use, plan)} for use in uses]
        result = {"directory": str(tier.folder), **asdict(totals), "models": models}
        if plan is not None:
            result["images"] = plan
        _answer(result, stats_table(result), json)


@app.command()
def ls(
    directory: _Directory = None,
    limit: Annotated[int, typer.Option(min=0, help="Entries at most; 0 for all.")] = 50,
    json: Json = False,
) -> None:
    """List entries, the latest used first."""
    from mmspec.cli.cache_tables import list_table

    with _opened(directory) as tier:
        records = tier.records()
        shown = records[: limit or None]
        result = {
            "directory": str(tier.folder),
            "total": len(records),
            "entries": [_listed(record) for record in shown],
        }
        _answer(result, list_table(shown), json)


@app.command()
def verify(directory: _Directory = None, json: Json = False) -> None:
    """Read every entry, and drop those that are damaged; exits with 1 when there were any."""
    from mmspec.cli.cache_tables import plain_table

    with _opened(directory) as tier:
        findings = tier.verify()
        result = {"directory": str(tier.folder), **asdict(findings)}
        table = plain_table(
            ("whole", str(findings.entries)),
            *((f"dropped {name[:16]}", reason) for name, reason in findings.dropped.items()),
            ("files that the index did not know", str(findings.adopted)),
            ("rows without a file", str(findings.missing)),
        )
        _answer(result, table, json)
    raise typer.Exit(1 if findings.dropped else 0)


@app.command()
def purge(
    directory: _Directory = None,
    everything: Annotated[bool, typer.Option("--all", help="Drop every entry.")] = False,
    namespace: Annotated[str | None, typer.Option(help="Drop those of a namespace.")] = None,
    encoder: Annotated[
        str | None, typer.Option(help="Drop those of an encoder, as ls and stats show it.")
    ] = None,
    unused_for: Annotated[
        str | None, typer.Option(help="Drop those that were not used for so long: 12h, 7d.")
    ] = None,
    json: Json = False,
) -> None:
    """Drop entries; those that an engine is reading stay readable to it."""
    from mmspec.cli.cache_tables import plain_table
    from mmspec.encoders.cache import namespace_digest, parse_duration

    if everything == any(given is not None for given in (namespace, encoder, unused_for)):
        raise MmspecError(
            "cache purge: say what to drop: --all, or any of --namespace, --encoder, --unused-for"
        )
    since = None if unused_for is None else time.time() - parse_duration(unused_for, "--unused-for")
    with _opened(directory) as tier:
        dropped = tier.purge(
            encoder=encoder,
            namespace=None if namespace is None else namespace_digest(namespace),
            unused_since=since,
        )
        result = {"directory": str(tier.folder), "purged": dropped, "left": tier.totals().entries}
        table = plain_table(("purged", str(dropped)), ("left", str(result["left"])))
        if not dropped and not everything:
            _remark("no entry matches; mmspec cache ls and stats show what there is")
        _answer(result, table, json)


@contextmanager
def _opened(directory: Path | None) -> Iterator["FolderTier"]:
    from mmspec.encoders.cache import FolderTier, TierUnavailable, default_directory

    folder = (directory or default_directory()).expanduser()
    if folder.is_file():
        raise MmspecError(f"cache: {folder} is a file; name the folder of a cache with --directory")
    if not (folder / "entries").is_dir():  # reading must not make one
        raise MmspecError(f"cache: no feature cache in {folder}; name its folder with --directory")
    tier = FolderTier(folder, _UNBOUNDED)
    try:
        yield tier
    except TierUnavailable as error:
        raise MmspecError(f"cache: {error}") from error
    finally:
        tier.close()


def _remark(text: str) -> None:
    """On standard error, so that with --json standard output holds the object alone."""
    Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(text)


def _answer(result: dict[str, Any], table: "Table", json: bool) -> None:
    if json:
        print(json_module.dumps(result))
    else:
        Console(highlight=False, markup=False).print(table)


def _listed(record: "Record") -> dict[str, Any]:
    return {
        "name": record.key.name,
        "model": record.key.model,
        "encoder": record.key.encoder,
        "namespace": record.key.namespace,
        "dtype": record.dtype,
        "shape": list(record.shape),
        "bytes": record.bytes,
        "made": record.made / 1e9,
        "used": record.used / 1e9,
    }
