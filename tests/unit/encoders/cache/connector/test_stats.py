"""Figures on their way to vLLM's log and its /metrics."""

from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from mmspec.encoders.cache import FolderTier, TieredStore
from mmspec.encoders.cache.connector.messages import WorkerReport
from mmspec.encoders.cache.connector.stats import CachePromMetrics, CacheStats, StatsCollector
from tests.unit.encoders.cache.clock import Clock
from tests.unit.encoders.cache.entries import entry, key


def test_only_what_is_new_is_sent(tmp_path: Path) -> None:
    clock = Clock()
    store = TieredStore([FolderTier(tmp_path, 10**6)])
    collector = StatsCollector(store, counts=True, clock=clock)
    store.put(key(1), entry(1))
    assert store.flush()
    store.missed(key(2))
    collector.add(WorkerReport({"a", "b"}, {"b"}, {"disk": {"hits": 2}}))

    first = collector.collect()
    assert first is not None and first.data["avoided"] == 1
    assert first.data["counters"]["disk"]["hits"] == 2
    assert first.data["counters"]["disk"]["misses"] == first.data["counters"]["disk"]["stores"] == 1

    while not collector._refresh or not collector._refresh.done():
        pass
    second = collector.collect()
    assert second is not None and second.data["tiers"]["disk"]["entries"] == 1
    assert not second.data["counters"] and not second.data["avoided"]
    assert collector.collect() is None
    collector.close()
    store.close()


def test_a_store_that_a_worker_here_reports_is_not_counted_twice(tmp_path: Path) -> None:
    store = TieredStore([FolderTier(tmp_path, 10**6)])
    collector = StatsCollector(store, counts=False)
    store.missed(key(2))

    found = collector.collect()
    assert found is None or not found.data["counters"]
    collector.close()
    store.close()


def test_they_become_a_line_of_the_log() -> None:
    one = CacheStats({"counters": {"disk": {"hits": 1, "misses": 2}}, "tiers": {}, "avoided": 1})
    other = CacheStats({"counters": {"disk": {"hits": 1}, "host": {"misses": 1}}, "avoided": 1})

    assert one.aggregate(other).reduce() == {
        "encoder runs avoided": 2,
        "disk hits": 2,
        "disk misses": 2,
        "host misses": 1,
    }
    assert CacheStats({}).is_empty() and not one.is_empty()


def test_they_become_metrics() -> None:
    registry = CollectorRegistry()

    class Bound:
        """vLLM's way of handing over the kinds of metrics; here with a registry of their own."""

        def __init__(self, kind: type) -> None:
            self.kind = kind

        def __call__(self, multiprocess_mode: str = "", **arguments: object) -> object:
            return self.kind(**arguments, registry=registry)

    from types import SimpleNamespace

    kinds = {kind: Bound(kind) for kind in (Counter, Gauge, Histogram)}
    metrics = CachePromMetrics(
        SimpleNamespace(ec_transfer_config=None), kinds, ["model_name", "engine"], {0: ["m", "0"]}
    )
    for _ in range(2):
        metrics.observe(
            {"counters": {"disk": {"hits": 1}}, "tiers": {"disk": {"bytes": 5}}, "avoided": 1}, engine_idx=0
        )

    labels = {"model_name": "m", "engine": "0", "tier": "disk"}
    name = "vllm:mmspec_encoder_cache_"
    assert registry.get_sample_value(f"{name}hits_total", labels) == 2
    assert registry.get_sample_value(f"{name}bytes", labels) == 5
    del labels["tier"]
    assert registry.get_sample_value(f"{name}encoder_runs_avoided_total", labels) == 2
