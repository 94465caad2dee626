"""The connector's side in a worker: loads what the scheduler promised, and saves what was encoded."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from mmspec.encoders.cache.connector.messages import Load, StepMetadata, WorkerReport, since
from mmspec.encoders.cache.connector.saver import Saver
from mmspec.encoders.cache.store import TieredStore
from mmspec.encoders.cache.tensors import tensor_of
from mmspec.encoders.device import to_device

_log = logging.getLogger("vllm.plugins.mmspec")
Agree = Callable[[Sequence[bool]], Sequence[bool]]


class WorkerSide:
    """One in each worker.

    Args:
        saver: saves in the background; None in workers that do not save.
        device: where features go.
        agree: of each load, whether every worker could do it. Encoding takes all workers at once.
    """

    def __init__(
        self, store: TieredStore, saver: Saver | None, device: torch.device, agree: Agree | None = None
    ) -> None:
        self._store = store
        self._saver = saver
        self._device = device
        self._agree = agree
        self._counted = store.counters()
        self._changes = store.changes
        self._done: set[str] = set()
        self._failed: set[str] = set()

    def load(self, metadata: StepMetadata, encoder_cache: dict[str, torch.Tensor]) -> None:
        """Puts what was promised into vLLM's encoder cache; what cannot be had is encoded in this step."""
        if not metadata.loads:
            return
        found = [self._take(load) for load in metadata.loads]
        whole = [tensor is not None for tensor in found]
        if self._agree is not None:
            whole = list(self._agree(whole))
        for load, tensor, there in zip(metadata.loads, found, whole, strict=True):
            self._done.add(load.held.token)
            if there and tensor is not None:
                encoder_cache[load.identifier] = tensor
            else:
                self._encode_instead(load, metadata)

    def save(self, metadata: StepMetadata, encoder_cache: dict[str, torch.Tensor], identifier: str) -> None:
        """Saves, later, what was encoded in this step."""
        key = metadata.saves.get(identifier)
        if key is None or self._saver is None:
            return
        if not self._saver.offer(key, encoder_cache[identifier]):
            self._store.skipped(key)

    def report(self) -> WorkerReport | None:
        """What there is to tell after a step; for most there is nothing, which is to cost nothing."""
        changes = self._store.changes  # first: what changes meanwhile is told next time
        if changes == self._changes and not self._done:
            return None
        counters = self._store.counters()
        report = WorkerReport(self._done, self._failed, since(self._counted, counters))
        self._counted, self._changes, self._done, self._failed = counters, changes, set(), set()
        return report or None

    def close(self) -> None:
        if self._saver is not None:
            self._saver.close()

    def _take(self, load: Load) -> torch.Tensor | None:
        entry = self._store.take(load.key, load.held)
        if entry is None:
            return None
        if len(entry.shape) != 2 or entry.shape[0] != load.rows:
            _log.warning(
                "encoder cache: features of shape %s where %d rows are due; the picture is encoded again",
                entry.shape,
                load.rows,
            )
            return None
        try:
            return to_device(tensor_of(entry), self._device)
        except Exception:  # whatever goes wrong in a cache, serving goes on without it
            _log.exception("encoder cache: features could not be loaded; the picture is encoded again")
            return None

    def _encode_instead(self, load: Load, metadata: StepMetadata) -> None:
        metadata.encoder_inputs.setdefault(load.request_id, []).append(load.index)
        metadata.saves[load.identifier] = load.key
        self._failed.add(load.identifier)


def by_all_of(group: Any) -> Agree:
    """Agreement of the processes of a `torch.distributed` group on the CPU."""

    def agree(whole: Sequence[bool]) -> Sequence[bool]:
        flags = torch.tensor([int(flag) for flag in whole], dtype=torch.int32)
        torch.distributed.all_reduce(flags, torch.distributed.ReduceOp.MIN, group=group)
        return [bool(flag) for flag in flags.tolist()]

    return agree
