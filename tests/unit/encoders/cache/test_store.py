"""Tiers together: order, promotion, background stores in bounded memory, and what fails is left out."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmspec.encoders.cache import (
    Encoder,
    Entry,
    FeatureKey,
    FolderTier,
    Keys,
    Tier,
    TieredStore,
    TierStats,
    TierUnavailable,
)
from tests.unit.encoders.cache.clock import Clock, messages
from tests.unit.encoders.cache.entries import entry, is_right, key


class FakeTier(Tier):
    """Keeps all it is given; fails, waits or is slow when it is told to."""

    def __init__(self, name: str = "fake", *, persistent: bool = False, local: bool = True) -> None:
        self.name, self.persistent, self.local = name, persistent, local
        self.held: dict[str, Entry] = {}
        self.asked = 0
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.seconds = 0.0

    def _work(self) -> None:
        self.asked += 1
        assert self.gate.wait(30)
        time.sleep(self.seconds)
        if self.error is not None:
            raise self.error

    def get(self, key: FeatureKey) -> Entry | None:
        self._work()
        return self.held.get(key.name)

    def put(self, key: FeatureKey, entry: Entry) -> bool:
        self._work()
        self.held[key.name] = entry
        return True

    def contains(self, key: FeatureKey) -> bool:
        self._work()
        return key.name in self.held

    def stats(self) -> TierStats:
        return TierStats(self.name)

    def purge(self, *, encoder: str | None = None, namespace: str | None = None) -> int:
        self._work()
        count = len(self.held)
        self.held.clear()
        return count

    def close(self) -> None:
        self.gate.set()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FolderTier]:
    tier = FolderTier(tmp_path, 10**9)
    yield tier
    tier.close()


def test_it_looks_in_order_and_promotes(disk: FolderTier) -> None:
    host, far = FakeTier("host"), FakeTier("remote", local=False)
    store = TieredStore([host, disk, far])
    far.put(key(1), entry(1))
    assert store.contains(key(1)) == "remote" and store.contains(key(1), local=True) is None

    hit = store.get(key(1))
    assert hit is not None and hit.tier == "remote" and is_right(1, hit.entry)
    assert store.flush()
    assert is_right(1, host.get(key(1))) and is_right(1, disk.get(key(1)))
    hit = store.get(key(1))
    assert hit is not None and hit.tier == "host"
    assert store.get(key(2)) is None
    assert [(stats["hits"], stats["misses"]) for stats in store.stats()] == [(1, 2), (0, 2), (1, 1)]
    store.close()


def test_what_was_put_is_found_at_once_and_stored_everywhere(disk: FolderTier) -> None:
    host = FakeTier("host")
    host.gate.clear()
    store = TieredStore([host, disk])
    assert store.put(key(1), entry(1))

    hit = store.get(key(1))
    assert hit is not None and is_right(1, hit.entry)
    assert store.contains(key(1)) == "host"
    host.gate.set()
    assert store.flush()
    assert is_right(1, host.get(key(1))) and is_right(1, disk.get(key(1)))
    store.close()


def test_an_untrusted_id_stays_in_memory(disk: FolderTier) -> None:
    host, far = FakeTier("host"), FakeTier("remote", persistent=True)
    store = TieredStore([host, disk, far])
    by_id = Keys(Encoder("w", "float32", 1)).of_id("../../page")
    store.put(by_id, entry(1))
    assert store.flush()

    assert store.contains(by_id) == "host"
    assert disk.totals().entries == 0 and far.held == {}
    trusted = Keys(Encoder("w", "float32", 1), trust_ids=True).of_id("../../page")
    store.put(trusted, entry(1))
    assert store.flush()
    assert disk.totals().entries == 1 and len(far.held) == 1
    store.close()


def test_the_queue_is_bounded_and_never_waits() -> None:
    tier = FakeTier()
    tier.gate.clear()
    size = entry(0, 1000).data.nbytes
    store = TieredStore([tier], queue_limit=3 * size)
    started = time.monotonic()
    taken = [store.put(key(number), entry(number, 1000)) for number in range(100)]

    assert taken == [True] * 3 + [False] * 97
    assert time.monotonic() - started < 5
    assert store.stats()[0]["queued_bytes"] == 3 * size and store.stats()[0]["skipped"] == 97
    tier.gate.set()
    assert store.flush()
    assert store.stats()[0]["queued_bytes"] == 0 and len(tier.held) == 3
    assert store.put(key(50), entry(50, 10_000))  # larger than the queue, which is empty
    assert store.flush() and len(tier.held) == 4
    store.close()


def test_a_slow_tier_does_not_hold_up_the_others(disk: FolderTier) -> None:
    slow = FakeTier("remote")
    slow.gate.clear()
    store = TieredStore([disk, slow])
    for number in range(20):
        store.put(key(number), entry(number))
    deadline = time.monotonic() + 30
    while disk.totals().entries < 20 and time.monotonic() < deadline:
        time.sleep(0.01)

    assert disk.totals().entries == 20 and slow.held == {}
    slow.gate.set()
    store.close()
    assert len(slow.held) == 20


def test_a_tier_that_cannot_be_closed_does_not_keep_the_others_open() -> None:
    class Broken(FakeTier):
        def close(self) -> None:
            raise TierUnavailable("no lock")

    closed: list[str] = []

    class Counting(FakeTier):
        def close(self) -> None:
            closed.append(self.name)

    TieredStore([Broken("broken"), Counting("good")]).close()

    assert closed == ["good"]


def test_closing_stores_what_waits_but_not_for_ever() -> None:
    quick, stuck = FakeTier("quick"), FakeTier("stuck")
    stuck.gate.clear()
    store = TieredStore([quick, stuck])
    for number in range(5):
        store.put(key(number), entry(number))
    store.close(seconds=0.3)

    assert len(quick.held) == 5 and len(stuck.held) <= 1
    assert not store.put(key(9), entry(9))


def test_a_failing_tier_is_left_out_said_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    bad, good, clock = FakeTier("bad"), FakeTier("good"), Clock()
    store = TieredStore([bad, good], retry_seconds=10, clock=clock)
    good.put(key(1), entry(1))
    bad.error = TierUnavailable("the plug is out")
    for _ in range(20):
        hit = store.get(key(1))
        assert hit is not None and hit.tier == "good"
        assert store.flush()
    assert bad.asked == 2  # one lookup, one promotion
    assert [said.partition(": ")[2] for said in messages(caplog)] == [
        "reading the bad tier failed and is left out, tried again every 10 s: the plug is out",
        "writing the bad tier failed and is left out, tried again every 10 s: the plug is out",
    ]
    assert not store.stats()[0]["works"] and store.stats()[0]["errors"] == 2

    clock.time = 11.0
    store.get(key(1))
    assert store.flush() and bad.asked == 4
    assert len(messages(caplog)) == 2  # still the same trouble

    bad.error, clock.time = None, 30.0
    store.get(key(1))
    assert store.flush()
    hit = store.get(key(1))
    assert hit is not None and hit.tier == "bad"
    assert [said.partition(": ")[2] for said in messages(caplog)[2:]] == [
        "reading the bad tier works again",
        "writing the bad tier works again",
    ]
    store.close()


def test_a_fault_in_a_tier_is_a_miss_too(caplog: pytest.LogCaptureFixture) -> None:
    tier = FakeTier()
    store = TieredStore([tier])
    tier.error = RuntimeError("a fault")

    assert store.get(key(1)) is None and store.contains(key(1)) is None
    assert store.put(key(1), entry(1)) and store.flush() and store.purge() == 0
    assert any(record.exc_info for record in caplog.records)  # a fault is to be found
    store.close()


def test_what_comes_too_late_is_used_once_then_left_out(caplog: pytest.LogCaptureFixture) -> None:
    slow = FakeTier()
    slow.put(key(1), entry(1))
    slow.deadline, slow.seconds = 0.05, 0.1
    store = TieredStore([slow], clock=Clock())

    assert store.get(key(1)) is not None
    assert store.get(key(1)) is None
    assert "more than 0.05 s" in messages(caplog)[0]
    slow.seconds = 0
    store.close()


def test_only_one_of_many_tries_a_tier_that_failed() -> None:
    tier, clock = FakeTier(), Clock()
    store = TieredStore([tier], clock=clock)
    tier.error = TierUnavailable("down")
    store.get(key(1))
    clock.time = 100.0
    tier.gate.clear()
    callers = [threading.Thread(target=store.get, args=(key(1),)) for _ in range(8)]
    for caller in callers:
        caller.start()
    time.sleep(0.2)
    tier.gate.set()
    for caller in callers:
        caller.join()

    assert tier.asked == 2
    store.close()


def test_holding_an_entry_for_another_process(tmp_path: Path) -> None:
    far = FakeTier("remote", persistent=True, local=False)
    scheduler = TieredStore([FolderTier(tmp_path, 3 * 4096), far])
    worker = TieredStore([FolderTier(tmp_path, 3 * 4096), far])
    far.put(key(1), entry(1, 100))

    held = scheduler.hold(key(1))
    assert held is not None and (held.tier, held.found) == ("disk", "remote")
    counted = scheduler.counters()
    assert [(counted[name]["hits"], counted[name]["misses"]) for name in ("disk", "remote")] == [
        (0, 1),
        (1, 0),
    ]
    for number in range(2, 9):
        scheduler.put(key(number), entry(number, 100))
    assert scheduler.flush()
    assert scheduler.contains(key(1), local=True) is None
    assert is_right(1, worker.take(key(1), held), 100)
    scheduler.release(held)
    assert worker.take(key(1), held) is None
    assert scheduler.hold(key(100)) is None
    assert (scheduler.counters()["disk"]["misses"], scheduler.counters()["remote"]["misses"]) == (2, 1)
    for store in (scheduler, worker):
        store.close()


def test_what_is_on_its_way_is_waited_for_and_is_a_hit(tmp_path: Path) -> None:
    gate = threading.Event()

    class Slow(FolderTier):
        def put(self, key: FeatureKey, entry: Entry) -> bool:
            assert gate.wait(30)
            return super().put(key, entry)

    store = TieredStore([Slow(tmp_path, 10**6)])
    store.put(key(1), entry(1))
    threading.Timer(0.1, gate.set).start()
    held = store.hold(key(1))

    assert held is not None and store.counters()["disk"]["misses"] == 0
    store.release(held)
    store.close()


def test_holding_waits_for_its_own_entry_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What others put behind it may take as long as it likes."""
    far, gate = FakeTier("remote", persistent=True, local=False), threading.Event()
    far.put(key(1), entry(1))

    class Busy(FolderTier):
        def put(self, key: FeatureKey, entry: Entry) -> bool:
            if not (tmp_path / "entries").exists():
                store.put(other, entry)  # while the first is being stored
            else:
                assert gate.wait(30)
            return super().put(key, entry)

    other = key(2)
    monkeypatch.setattr("mmspec.encoders.cache.store._STORE_SECONDS", 25.0)
    store = TieredStore([Busy(tmp_path, 10**6), far])
    started = time.monotonic()
    held = store.hold(key(1))

    assert held is not None and time.monotonic() - started < 20
    gate.set()
    store.release(held)
    store.close()


def test_what_was_read_to_hold_it_is_not_read_again_here(tmp_path: Path) -> None:
    store = TieredStore([FolderTier(tmp_path, 10**6)], queue_limit=1)
    for number in (1, 2):
        store.put(key(number), entry(number))
        assert store.flush()

    kept, read_again = store.hold(key(1), keep=True), store.hold(key(2), keep=True)
    assert kept is not None and read_again is not None
    for file in (tmp_path / "held").iterdir():
        file.unlink()
    assert is_right(1, store.take(key(1), kept))
    assert store.take(key(2), read_again) is None  # past the limit of what is kept
    assert store.take(key(1), kept) is None  # handed over once
    store.release(kept)
    store.close()


def test_what_is_held_on_the_disk_goes_to_faster_folders(tmp_path: Path) -> None:
    disk = FolderTier(tmp_path / "disk", 10**6)
    disk.put(key(1), entry(1))
    store = TieredStore([FolderTier(tmp_path / "host", 10**6, name="host", persistent=False), disk])

    held = store.hold(key(1))
    assert held is not None and held.tier == "disk"
    assert store.flush()
    again = store.hold(key(1))
    assert again is not None and again.tier == again.found == "host"
    store.close()


def test_a_damaged_entry_is_not_promised(tmp_path: Path) -> None:
    store = TieredStore([FolderTier(tmp_path, 10**6)])
    store.put(key(1), entry(1))
    assert store.flush()
    (file,) = (tmp_path / "entries").iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"?")

    assert store.contains(key(1)) == "disk"
    assert store.hold(key(1)) is None
    assert store.contains(key(1)) is None and not list((tmp_path / "held").iterdir())
    store.close()


def test_purging_goes_through_all_tiers(disk: FolderTier) -> None:
    host = FakeTier("host")
    store = TieredStore([host, disk])
    for number in range(3):
        store.put(key(number), entry(number))

    assert store.purge() == 6
    assert store.get(key(1)) is None
    store.close()


def test_without_tiers_it_is_a_cache_that_never_hits() -> None:
    store = TieredStore([])

    assert store.get(key(1)) is None and not store.put(key(1), entry(1)) and store.stats() == []
    assert store.hold(key(1)) is None
    store.close()
