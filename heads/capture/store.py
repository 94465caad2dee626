"""A captured dataset while it grows: what is published counts as done, everything else never happened."""

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import torch

from mmspec.errors import MmspecError
from mmspec.heads.capture import shards
from mmspec.heads.capture.conversations import Skipped
from mmspec.heads.capture.folder import lock_folder, require_own_folder
from mmspec.heads.capture.manifest import Counts, Manifest, ShardRecord, SkippedRecord
from mmspec.heads.capture.published import Published, mend_published

# Names, shapes and offsets in a shard's header, and the index entry, for one sample with a few pictures.
_HEADER_BYTES = 2048
_MANIFEST_BYTES = 1 << 16


@dataclass(frozen=True)
class Sample:
    """One sequence as it is stored: `hidden_states`, `last_hidden`, `input_ids`, `loss_mask` and so on."""

    record: shards.SampleRecord
    tensors: dict[str, torch.Tensor]


class CaptureStore:
    """Writes samples and features of distinct pictures into shards.

    Args:
        folder: of the dataset; new, or one that the same settings made.
        manifest: of this run.
        shard_bytes: a shard is published before it grows beyond.
        max_bytes: of all files together, at any time.

    Raises:
        MmspecError: the folder belongs to other settings, to another run, or is no captured dataset.
    """

    def __init__(self, folder: Path, manifest: Manifest, *, shard_bytes: int, max_bytes: int) -> None:
        self.folder = folder
        self._shard_bytes, self._max_bytes = shard_bytes, max_bytes
        self._manifest = manifest
        require_own_folder(folder, manifest)
        self._lock = lock_folder(folder)
        shutil.rmtree(folder / shards.PARTIAL, ignore_errors=True)
        self._run = _run_id(self._manifest)
        self._published, self.mended = mend_published(folder, self._run)
        self._samples: list[Sample] = []
        self._features: dict[str, torch.Tensor] = {}
        self._skipped: list[Skipped] = []
        self._write_manifest(complete=False)

    @property
    def done(self) -> set[str]:
        """Keys of the conversations that are published."""
        return {record.key for record in self._published.records}

    @property
    def spool(self) -> Path:
        """A folder for the engine's files; emptied when a capture starts and ends."""
        return self.folder / shards.PARTIAL / "spool"

    @property
    def bytes(self) -> int:
        """Of the published shards."""
        return self._published.bytes

    @property
    def counts(self) -> Counts:
        records = self._published.records
        return Counts(
            conversations=len({record.key for record in records}),
            samples=len(records),
            tokens=sum(record.tokens for record in records),
            answer_tokens=sum(record.answer_tokens for record in records),
            pictures=len(self._published.pictures),
            skipped=len(self._skipped),
        )

    @property
    def skipped(self) -> list[Skipped]:
        """In the order of the prompts."""
        return sorted(self._skipped, key=lambda one: one.line)

    def has_features(self, key: str) -> bool:
        return key in self._published.pictures or key in self._features

    def fits(self, more: int) -> bool:
        """Whether `more` bytes beside everything here stay within the bound."""
        return self._taken() + more <= self._max_bytes

    def require_some(self, more: int) -> None:
        """Raises MmspecError when nothing is here: then the bound is too small for any conversation."""
        if not self._published.records and not self._samples:
            raise MmspecError(
                f"at most {self._max_bytes} bytes: the first conversation alone needs about "
                f"{self._taken() + more}; give a larger --max-bytes"
            )

    def add(self, samples: Sequence[Sample], features: Mapping[str, torch.Tensor]) -> None:
        """Takes all samples of one conversation, and the features of its pictures that are not here yet."""
        new = sum(_size(sample.tensors) for sample in samples) + _size(features)
        if self._samples and self._pending_bytes() + new > self._shard_bytes:
            self.publish()
        self._samples += samples
        self._features |= features

    def skip(self, skipped: Skipped) -> None:
        self._skipped.append(skipped)

    def publish(self) -> None:
        """Puts what is pending into shards; the features first, since the samples refer to them."""
        if self._features:
            number = self._published.next_number(shards.FEATURES)
            path = shards.publish(self.folder, shards.FEATURES, number, self._features, {"run": self._run})
            self._published.add_features(path, set(self._features))
            self._features = {}
        if self._samples:
            number = self._published.next_number(shards.SAMPLES)
            tensors = {
                sample.record.tensor(name): tensor
                for sample in self._samples
                for name, tensor in sample.tensors.items()
            }
            records = [sample.record for sample in self._samples]
            index = shards.sample_index(self._run, records)
            path = shards.publish(self.folder, shards.SAMPLES, number, tensors, index)
            self._published.add_samples(path, records)
            self._samples = []
        self._write_manifest(complete=False)

    def finish(self, *, complete: bool) -> None:
        """Publishes what is pending and says in the manifest whether every line was captured."""
        self.publish()
        self._write_manifest(complete=complete)

    def __enter__(self) -> "CaptureStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.folder / shards.PARTIAL, ignore_errors=True)
        self._lock.close()

    def _taken(self) -> int:
        """Bytes on the disk once what is pending and one more sample's header are."""
        return self.bytes + self._pending_bytes() + _HEADER_BYTES + _MANIFEST_BYTES

    def _pending_bytes(self) -> int:
        samples = sum(_size(sample.tensors) for sample in self._samples)
        entries = len(self._samples) + len(self._features)
        return samples + _size(self._features) + _HEADER_BYTES * entries

    def _write_manifest(self, *, complete: bool) -> None:
        self._manifest = self._manifest.model_copy(
            update={
                "complete": complete,
                "counts": self.counts,
                "skipped": [SkippedRecord(line=one.line, reason=one.reason) for one in self.skipped],
                "samples": _shard_records(self._published, shards.SAMPLES),
                "features": _shard_records(self._published, shards.FEATURES),
            }
        )
        self._manifest.write(self.folder)


def _run_id(manifest: Manifest) -> str:
    """What the shards of one dataset have in common."""
    identity = manifest.identity()
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def _shard_records(published: Published, kind: str) -> list[ShardRecord]:
    return [
        ShardRecord(name=f"{kind}/{name}", bytes=size) for name, size in sorted(published.files[kind].items())
    ]


def _size(tensors: Mapping[str, torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())
