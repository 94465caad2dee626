"""Shards: safetensors files that are published whole, with an index of what is in them in their header."""

import json
import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from mmspec.errors import MmspecError

SAMPLES, FEATURES, PARTIAL = "samples", "features", ".partial"
"""Folders of a captured dataset. `features` has a tensor for each distinct picture, named by its key."""

_INDEX = "mmspec"
_NAME = re.compile(r"\d{5,}\.safetensors")


class BrokenShardError(MmspecError):
    """A shard that is missing or not whole."""


@dataclass(frozen=True)
class SampleRecord:
    """A sample in the index of its shard: its tensors are named `key/part/…`."""

    key: str  # of the conversation
    line: int
    part: int
    tokens: int
    answer_tokens: int
    pictures: list[str] = field(default_factory=list)  # keys of features in the order of their positions

    def tensor(self, name: str) -> str:
        return f"{self.key}/{self.part}/{name}"


def shard_name(number: int) -> str:
    return f"{number:05}.safetensors"


def shards_in(folder: Path) -> list[Path]:
    """The shards in one of the folders, in order; files of other names are left alone."""
    return sorted(path for path in folder.glob("*.safetensors") if _NAME.fullmatch(path.name))


def publish(
    folder: Path, kind: str, number: int, tensors: dict[str, torch.Tensor], index: dict[str, Any]
) -> Path:
    """Writes a shard beside its place and moves it there when it is on the disk."""
    draft = folder / PARTIAL / f"{kind}-{shard_name(number)}"
    draft.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, draft, metadata={_INDEX: json.dumps(index)})
    draft.chmod(0o644)  # safetensors keeps others from reading
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    place = folder / kind / shard_name(number)
    place.parent.mkdir(parents=True, exist_ok=True)
    os.replace(draft, place)
    return place


def open_shard(path: Path) -> Any:
    """The shard, memory-mapped.

    Raises:
        BrokenShardError: it is missing or truncated.
    """
    try:
        return safe_open(path, framework="pt")
    except FileNotFoundError:
        raise BrokenShardError(f"{path}: missing; restore the shard, or run the capture again") from None
    except (SafetensorError, OSError) as error:
        raise BrokenShardError(
            f"{path}: broken ({error}); restore the shard, or run the capture again"
        ) from None


def tensor_names(path: Path) -> set[str]:
    """Names of the shard's tensors; those of features are keys of pictures."""
    return set(open_shard(path).keys())


def read_index(path: Path) -> dict[str, Any]:
    """What `publish` was given as index.

    Raises:
        BrokenShardError: as `open_shard`.
        MmspecError: the file is another kind of safetensors.
    """
    metadata = open_shard(path).metadata() or {}
    try:
        index: dict[str, Any] = json.loads(metadata[_INDEX])
    except (KeyError, ValueError):
        raise MmspecError(f"{path}: not a shard of captured data; remove it") from None
    return index


def records_of(index: dict[str, Any]) -> list[SampleRecord]:
    return [SampleRecord(**record) for record in index["samples"]]


def sample_index(run: str, records: list[SampleRecord]) -> dict[str, Any]:
    return {"run": run, "samples": [asdict(record) for record in records]}
