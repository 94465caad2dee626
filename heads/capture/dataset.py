"""Reads a captured dataset: samples are mapped from the disk when they are asked for."""

from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from mmspec.errors import MmspecError
from mmspec.heads.capture import shards
from mmspec.heads.capture.manifest import ShardRecord, read_manifest


class CapturedDataset(Dataset[dict[str, Any]]):
    """The samples of a folder that `mmspec head capture` made.

    A sample of n tokens, of which m are visual, is a dict:

    | key | |
    | --- | --- |
    | `input_ids` | [n] int64, placeholders expanded as by the target's processor |
    | `loss_mask` | [n] bool, the target's own answers |
    | `positions` | [n] int64, sequence indices |
    | `mrope_positions` | [3, n] int64, or None where the target has none |
    | `hidden_states` | [n, layers × hidden], inputs of the auxiliary layers, ascending, residual added |
    | `last_hidden` | [n, hidden], output of the last layer before the final norm |
    | `features` | [m, hidden] in the order of `is_visual`, or None without pictures |
    | `is_visual` | [n] bool, positions that hold an embedding of a picture |

    Raises:
        MmspecError: no dataset of this version, or a shard that is missing, truncated or renamed.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder)
        self._shards = [self._verified(shard) for shard in self.manifest.samples]
        self._records = [shards.records_of(shards.read_index(path)) for path in self._shards]
        self._ends = list(accumulate(len(records) for records in self._records))
        self._homes = self._homes_of_features()
        self._opened: dict[Path, Any] = {}

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        shard, record = self._find(index)
        opened = self._open(self._shards[shard])
        has_mrope = self.manifest.mrope
        sample = {
            name: opened.get_tensor(record.tensor(name))
            for name in ("input_ids", "loss_mask", "hidden_states", "last_hidden", "is_visual")
        }
        return sample | {
            "positions": torch.arange(record.tokens),
            "mrope_positions": opened.get_tensor(record.tensor("mrope_positions")) if has_mrope else None,
            "features": self._features(record.pictures),
        }

    def answer(self, index: int) -> torch.Tensor:
        """The target's own tokens of a sample [tokens], without reading its states."""
        shard, record = self._find(index)
        opened = self._open(self._shards[shard])
        return opened.get_tensor(record.tensor("input_ids"))[opened.get_tensor(record.tensor("loss_mask"))]

    def record(self, index: int) -> shards.SampleRecord:
        """Where a sample comes from, and how long it is, without reading it."""
        return self._find(index)[1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": {}}  # maps do not go to other processes

    def _find(self, index: int) -> tuple[int, shards.SampleRecord]:
        size = len(self)
        if not -size <= index < size:
            raise IndexError(f"sample {index} of {size}")
        index %= size
        shard = bisect_right(self._ends, index)
        return shard, self._records[shard][index - self._ends[shard]]

    def _features(self, pictures: list[str]) -> torch.Tensor | None:
        if not pictures:
            return None
        return torch.cat([self._open(self._homes[key]).get_tensor(key) for key in pictures])

    def _open(self, path: Path) -> Any:
        if path not in self._opened:
            self._opened[path] = shards.open_shard(path)
        return self._opened[path]

    def _homes_of_features(self) -> dict[str, Path]:
        paths = [self._verified(shard) for shard in self.manifest.features]
        homes = {key: path for path in paths for key in shards.tensor_names(path)}
        needed = {key for records in self._records for record in records for key in record.pictures}
        if lost := sorted(needed - homes.keys()):
            raise MmspecError(
                f"captured data {self.folder}: no features of picture {lost[0][:12]}…; run the capture again"
            )
        return homes

    def _verified(self, shard: ShardRecord) -> Path:
        path = self.folder / shard.name
        if not path.exists():
            raise MmspecError(f"{path}: missing; restore the shard, or run the capture again")
        if (size := path.stat().st_size) != shard.bytes:
            raise MmspecError(
                f"{path}: {size} bytes, not {shard.bytes}; restore the shard, or run the capture again"
            )
        return path
