"""What is published in a captured dataset, read from its shards alone."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmspec.errors import MmspecError
from mmspec.heads.capture import shards


@dataclass
class Published:
    """Sizes of the files by kind and name, samples, and keys of pictures whose features are there."""

    files: dict[str, dict[str, int]] = field(
        default_factory=lambda: {shards.SAMPLES: {}, shards.FEATURES: {}}
    )
    records: list[shards.SampleRecord] = field(default_factory=list)
    pictures: set[str] = field(default_factory=set)

    @property
    def bytes(self) -> int:
        return sum(size for sizes in self.files.values() for size in sizes.values())

    def next_number(self, kind: str) -> int:
        return max((int(name.partition(".")[0]) + 1 for name in self.files[kind]), default=0)

    def add_samples(self, path: Path, records: list[shards.SampleRecord]) -> None:
        self.files[shards.SAMPLES][path.name] = path.stat().st_size
        self.records += records

    def add_features(self, path: Path, keys: set[str]) -> None:
        self.files[shards.FEATURES][path.name] = path.stat().st_size
        self.pictures |= keys


def mend_published(folder: Path, run: str) -> tuple[Published, list[str]]:
    """What is whole in the folder, and a line for each file that was taken out.

    Broken shards hold nothing that can be used, so they go, and with them samples whose features they held: their
    conversations are captured again.

    Raises:
        MmspecError: a shard of another dataset is among them.
    """
    published, removed = Published(), []
    for path in shards.shards_in(folder / shards.FEATURES):
        if _index_or_none(path, run) is None:
            removed.append(_remove(path, "broken"))
        else:
            published.add_features(path, shards.tensor_names(path))
    for path in shards.shards_in(folder / shards.SAMPLES):
        index = _index_or_none(path, run)
        records = shards.records_of(index) if index is not None else []
        lost = {key for record in records for key in record.pictures} - published.pictures
        if index is None or lost:
            removed.append(_remove(path, "without its features" if lost else "broken"))
        else:
            published.add_samples(path, records)
    return published, removed


def _index_or_none(path: Path, run: str) -> dict[str, Any] | None:
    try:
        index = shards.read_index(path)
    except shards.BrokenShardError:
        return None
    if index.get("run") != run:
        raise MmspecError(f"{path}: a shard of another capture; move it out of this folder")
    return index


def _remove(path: Path, reason: str) -> str:
    path.unlink()
    return f"{path.parent.name}/{path.name} was {reason} and is captured again"
