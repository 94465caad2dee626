"""Figures of the cache on their way to vLLM's log and its /metrics."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from vllm.distributed.ec_transfer.ec_connector.metrics import ECConnectorPromMetrics, ECConnectorStats

from mmspec.encoders.cache.connector.messages import WorkerReport, added, since
from mmspec.encoders.cache.store import TieredStore

# vLLM forgets, for the next engine of a process, the metrics that have its name in theirs.
_PREFIX = "vllm:mmspec_encoder_cache_"
_COUNTERS = {
    "hits": "Pictures that were looked up in the tier and found.",
    "misses": "Pictures that were looked up in the tier and not found.",
    "stores": "Pictures that were stored in the tier.",
    "refused": "Pictures that were larger than the tier.",
    "skipped": "Pictures that were not stored, for want of room in the queue or because the tier was left out.",
    "errors": "Operations that failed or came back too late.",
    "load_seconds": "Seconds spent reading the tier.",
    "load_bytes": "Bytes read from the tier.",
    "store_seconds": "Seconds spent storing, in the background.",
    "store_bytes": "Bytes stored.",
}
_GAUGES = {
    "entries": "Pictures in the tier.",
    "bytes": "Bytes that they take.",
    "evictions": "Pictures that were evicted since the tier was made, by any engine.",
    "corrupt": "Pictures that were damaged, and dropped, since the tier was made.",
}
_AVOIDED = "Runs of the vision tower that were spared by loading."
_REFRESH_SECONDS = 5.0
_POLL_SECONDS = 1.0


class CacheStats(ECConnectorStats):
    """`data` has `counters` by tier, since the last of its kind, `tiers` as they are, and `avoided` runs."""

    def reset(self) -> None:
        self.data: dict[str, Any] = {}

    def is_empty(self) -> bool:
        return not any(self.data.values())

    def aggregate(self, other: ECConnectorStats) -> "CacheStats":
        mine, theirs = self.data, other.data
        return CacheStats(
            {
                "counters": added(mine.get("counters", {}), theirs.get("counters", {})),
                "tiers": {**mine.get("tiers", {}), **theirs.get("tiers", {})},
                "avoided": mine.get("avoided", 0) + theirs.get("avoided", 0),
            }
        )

    def reduce(self) -> dict[str, int | float]:
        """The line of vLLM's log: hits and misses by tier, and what was spared."""
        figures: dict[str, int | float] = {"encoder runs avoided": self.data.get("avoided", 0)}
        for tier, counters in self.data.get("counters", {}).items():
            for name in ("hits", "misses", "stores", "errors"):
                if value := counters.get(name):
                    figures[f"{tier} {name}"] = int(value)
        return figures


class StatsCollector:
    """Gathers what workers report and what this process did, for the scheduler's next output.

    Args:
        counts: whether this process's own counters count, or a worker here reports them already.
    """

    def __init__(
        self, store: TieredStore, *, counts: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._counts = counts
        self._clock = clock
        self._counted = store.counters()
        self._reported = WorkerReport()
        self._avoided = 0
        self._polled = self._refreshed = float("-inf")
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mmspec-cache-stats")
        self._refresh: Future[list[dict[str, Any]]] | None = None

    def add(self, report: WorkerReport) -> None:
        self._reported = self._reported.aggregate(report)
        self._avoided += len(report.done) - len(report.failed)

    def collect(self) -> CacheStats | None:
        """What is new since the last call, None when nothing is."""
        tiers = self._refreshed_tiers()
        if not self._reported and not tiers and self._clock() - self._polled < _POLL_SECONDS:
            return None
        self._polled = self._clock()
        counters = self._reported.counters
        if self._counts:
            now = self._store.counters()
            counters, self._counted = added(counters, since(self._counted, now)), now
        stats = CacheStats({"counters": counters, "tiers": tiers, "avoided": self._avoided})
        self._reported, self._avoided = WorkerReport(), 0
        return None if stats.is_empty() else stats

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _refreshed_tiers(self) -> dict[str, dict[str, int]]:
        """The tiers' own figures, which take a query each, a few seconds apart and from another thread."""
        if self._refresh is not None and self._refresh.done():
            found, self._refresh = self._refresh, None
            return {tier["name"]: _known(tier) for tier in found.result()}
        if self._refresh is None and self._clock() - self._refreshed > _REFRESH_SECONDS:
            self._refreshed = self._clock()
            self._refresh = self._thread.submit(self._store.stats)
        return {}


class CachePromMetrics(ECConnectorPromMetrics):
    """The same in Prometheus, each with the labels `model_name`, `engine` and, but for one, `tier`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        by_tier = [*self._labelnames, "tier"]
        self._counters = {
            name: self._counter_cls(name=_PREFIX + name, documentation=text, labelnames=by_tier)
            for name, text in _COUNTERS.items()
        }
        self._gauges = {
            name: self._gauge_cls(
                name=_PREFIX + name, documentation=text, labelnames=by_tier, multiprocess_mode="mostrecent"
            )
            for name, text in _GAUGES.items()
        }
        self._avoided = self._counter_cls(
            name=f"{_PREFIX}encoder_runs_avoided", documentation=_AVOIDED, labelnames=self._labelnames
        )

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        labels = self.per_engine_labelvalues[engine_idx]
        self._avoided.labels(*labels).inc(transfer_stats_data.get("avoided", 0))
        for tier, counters in transfer_stats_data.get("counters", {}).items():
            for name, value in counters.items():
                self._counters[name].labels(*labels, tier).inc(value)
        for tier, figures in transfer_stats_data.get("tiers", {}).items():
            for name, value in figures.items():
                self._gauges[name].labels(*labels, tier).set(value)


def _known(tier: Mapping[str, Any]) -> dict[str, int]:
    return {name: tier[name] for name in _GAUGES if tier.get(name) is not None}
