"""Takes features off the device and into the store, beside the engine's step and in bounded memory."""

import logging
import threading
from collections import deque
from typing import Any

import torch

from mmspec.encoders.cache.keys import FeatureKey
from mmspec.encoders.cache.store import TieredStore
from mmspec.encoders.cache.tensors import entry_of

_log = logging.getLogger("vllm.plugins.mmspec")


class Saver:
    """A queue of features on the device, and the thread that copies them to host memory and stores them.

    Args:
        limit: most bytes that wait, which are kept alive on the device; what finds no room is not saved. Features that
            come to an empty queue are always taken.
    """

    def __init__(self, store: TieredStore, limit: int) -> None:
        self._store = store
        self._limit = limit
        self._waiting: deque[tuple[FeatureKey, torch.Tensor, Any]] = deque()  # the first is being saved
        self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def offer(self, key: FeatureKey, features: torch.Tensor) -> bool:
        """Takes features, which must not be written into any more; False when there is no room for them now."""
        ready = _event_after_what_was_queued(features)
        with self._changed:
            if self._closed or (self._waiting and self._bytes + features.nbytes > self._limit):
                return False
            self._waiting.append((key, features.detach(), ready))
            self._bytes += features.nbytes
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mmspec-cache-saver", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return True

    def flush(self, seconds: float) -> bool:
        """Waits until the store has all; False when time ran out."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, seconds)

    def close(self, seconds: float = 10.0) -> None:
        """Hands what waits to the store, for `seconds` at most, and ends the thread."""
        self.flush(seconds)
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while (item := self._next()) is not None:
            key, features, ready = item
            try:
                self._store.put(key, entry_of(_on_host(features, ready)))
            except Exception:  # a cache never ends an engine
                _log.exception("encoder cache: features could not be saved")
            with self._changed:
                self._waiting.popleft()
                self._bytes -= features.nbytes
                self._changed.notify_all()
            del item, features, ready  # an idle thread keeps no features

    def _next(self) -> tuple[FeatureKey, torch.Tensor, Any] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            return self._waiting[0] if self._waiting else None


def _event_after_what_was_queued(features: torch.Tensor) -> Any:
    """On a GPU, what tells that the encoder is done: until then the tensor holds nothing."""
    if not features.is_cuda:
        return None
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(features.device))
    return event


def _on_host(features: torch.Tensor, ready: Any) -> torch.Tensor:
    """The features in host memory; on a GPU copied on a stream of its own, so that no kernel of the engine's waits."""
    if ready is None:
        return features
    with torch.cuda.device(features.device):
        stream = torch.cuda.Stream(features.device)
        stream.wait_event(ready)
        with torch.cuda.stream(stream):
            host = torch.empty(features.shape, dtype=features.dtype, pin_memory=True)
            host.copy_(features, non_blocking=True)
        features.record_stream(stream)
        stream.synchronize()
    return host
