"""What must hold of a folder at every moment, looked at from outside: without the code that mends it."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from mmspec.encoders.cache import FolderTier
from mmspec.encoders.cache.entry import Corrupt, decode
from tests.unit.encoders.cache.entries import is_right, key


def faults(folder: Path, limit: int, numbers: int) -> list[str]:
    """What is wrong with a folder whose writers are dead; then opens it, and says what is wrong after that."""
    if not (folder / "index.sqlite").exists():  # killed before there was one
        return []
    return [*_index_faults(folder, limit, numbers), *_faults_once_opened(folder, limit, numbers)]


def _index_faults(folder: Path, limit: int, numbers: int) -> list[str]:
    known = {key(number).name: number for number in range(numbers)}
    with closing(sqlite3.connect(folder / "index.sqlite")) as db:
        if not db.execute("SELECT 1 FROM sqlite_master").fetchone():
            return []
        rows = db.execute("SELECT name, bytes FROM entries").fetchall()
        entries, size = db.execute("SELECT entries, bytes FROM totals").fetchone()
    found = [
        f"a row of {name[:8]} with {fault}" for name, _ in rows if (fault := _file_fault(folder, name, known))
    ]
    if (entries, size) != (len(rows), sum(row[1] for row in rows)):
        found.append(f"{len(rows)} rows are counted as {entries} with {size} bytes")
    if size > limit:
        found.append(f"{size} bytes are over the limit of {limit}")
    return found


def _file_fault(folder: Path, name: str, known: dict[str, int]) -> str | None:
    try:
        content = (folder / "entries" / f"{name}.safetensors").read_bytes()
        return None if is_right(known[name], decode(memoryview(content), name)) else "other content"
    except FileNotFoundError:
        return "no file"
    except Corrupt as reason:
        return str(reason)


def _faults_once_opened(folder: Path, limit: int, numbers: int) -> list[str]:
    tier = FolderTier(folder, limit)
    findings = tier.verify()
    found = [f"a damaged {name[:8]}: {reason}" for name, reason in findings.dropped.items()]
    entries = {number: tier.get(key(number)) for number in range(numbers)}
    found += [
        f"a wrong {number}" for number, entry in entries.items() if entry and not is_right(number, entry)
    ]
    if tier.totals().entries != len(os.listdir(folder / "entries")):
        found.append("files that the opened index does not know")
    if os.listdir(folder / "parts"):
        found.append("parts that were left")
    tier.close()
    return found
