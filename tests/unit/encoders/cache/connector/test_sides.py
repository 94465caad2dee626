"""The connector's two sides, against each other and without an engine."""

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mmspec.encoders.cache import Encoder, FolderTier, TieredStore
from mmspec.encoders.cache.connector.keyring import Keyring
from mmspec.encoders.cache.connector.messages import StepMetadata, WorkerReport
from mmspec.encoders.cache.connector.saver import Saver
from mmspec.encoders.cache.connector.scheduler_side import SchedulerSide
from mmspec.encoders.cache.connector.worker_side import WorkerSide
from mmspec.encoders.cache.identity import by_content, identifier_of
from mmspec.encoders.fastv.salt import own_salt

ROWS, WIDTH = 6, 4
FEATURES = torch.arange(ROWS * WIDTH, dtype=torch.float32).reshape(ROWS, WIDTH)
PICTURE = identifier_of(by_content("a picture"))
OTHER = identifier_of(by_content("another"))


class Engine:
    """What vLLM does with a connector, one step at a time."""

    def __init__(self, folder: Path, agree: Any = None) -> None:
        self.store = TieredStore([FolderTier(folder, 10**8)])
        keyring = Keyring(Encoder("weights", "float32", WIDTH), "", trust_ids=False)
        self.scheduler = SchedulerSide(self.store, keyring, loads=True, saves=True, beside_worker=False)
        self.saver = Saver(self.store, 10**6)
        self.worker = WorkerSide(self.store, self.saver, torch.device("cpu"), agree)
        self.device: dict[str, torch.Tensor] = {}

    def wait_until_ready(self, request: Any) -> None:
        for _ in range(1000):
            if self.scheduler.ready(request, 0):
                return
            self.scheduler.metadata(output())
        raise AssertionError("the lookup does not end")

    def step(
        self, *requests: Any, preempted: tuple[str, ...] = (), freed: tuple[str, ...] = ()
    ) -> StepMetadata:
        """Schedules the requests' first pictures, and runs the step."""
        scheduled: dict[str, list[int]] = {}
        for request in requests:
            identifier = request.mm_features[0].identifier
            loaded = self.scheduler.has(identifier)
            self.scheduler.allocated(request, 0)
            if not loaded and request.request_id not in preempted:
                scheduled[request.request_id] = [0]
        running = [request.request_id for request in requests if request.request_id not in preempted]
        metadata = self.scheduler.metadata(output(running, scheduled, freed))
        for identifier in freed:
            self.device.pop(identifier, None)
        self.worker.load(metadata, self.device)
        for request in requests:
            identifier = request.mm_features[0].identifier
            if scheduled.get(request.request_id):
                self.device[identifier] = FEATURES
                self.worker.save(metadata, self.device, identifier)
        self.encoded = scheduled
        if (report := self.worker.report()) is not None:
            self.scheduler.heard(report)
        return metadata

    def stored(self) -> None:
        assert self.saver.flush(30) and self.store.flush(30)

    def close(self) -> None:
        self.scheduler.close()
        self.worker.close()
        self.store.close()


def output(running: Any = (), scheduled: Any = None, freed: Any = ()) -> Any:
    return SimpleNamespace(
        total_num_scheduled_tokens=len(running),
        num_scheduled_tokens=dict.fromkeys(running, 1),
        scheduled_encoder_inputs={} if scheduled is None else scheduled,
        free_encoder_mm_hashes=list(freed),
    )


def request(name: str, identifier: str = PICTURE) -> Any:
    position = SimpleNamespace(offset=2, length=ROWS, get_num_embeds=lambda: ROWS)
    return SimpleNamespace(
        request_id=name,
        cache_salt=None,
        mm_features=[SimpleNamespace(identifier=identifier, modality="image", mm_position=position)],
        get_num_encoder_embeds=lambda index: ROWS,
    )


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """One whose cache has the picture."""
    first = Engine(tmp_path)
    first.wait_until_ready(request("a"))
    first.step(request("a"))
    first.stored()
    first.close()
    made = Engine(tmp_path)
    yield made
    made.close()
    assert not list((tmp_path / "held").iterdir())


@pytest.mark.parametrize(("user", "encoded"), [(None, {}), ("tenant", {"b": [0]})])
def test_the_salt_of_a_pruned_request_keeps_no_features_from_it_but_the_users_does(
    user: str | None, encoded: dict[str, list[int]], engine: Engine
) -> None:
    asked = request("b")
    asked.cache_salt = own_salt(user)
    engine.wait_until_ready(asked)
    engine.step(asked)

    assert engine.encoded == encoded
    engine.stored()


def test_what_one_engine_encoded_another_loads(engine: Engine) -> None:
    engine.wait_until_ready(request("b"))
    metadata = engine.step(request("b"))

    assert engine.encoded == {} and [load.held.found for load in metadata.loads] == ["disk"]
    assert torch.equal(engine.device[PICTURE], FEATURES)
    assert engine.scheduler.promised(PICTURE)


def test_what_is_gone_when_it_is_loaded_is_encoded(engine: Engine, tmp_path: Path) -> None:
    engine.wait_until_ready(request("b"))
    for file in (tmp_path / "held").iterdir():
        file.unlink()
    metadata = engine.step(request("b"))

    assert engine.encoded == {"b": [0]} and set(metadata.saves) == {PICTURE}


def test_workers_encode_together_or_not_at_all(tmp_path: Path, engine: Engine) -> None:
    other = Engine(tmp_path, agree=lambda whole: [False] * len(whole))
    other.wait_until_ready(request("b"))
    other.step(request("b"))

    assert other.encoded == {"b": [0]}
    other.close()


def test_features_of_another_shape_are_not_taken(engine: Engine) -> None:
    changed = request("b")
    changed.get_num_encoder_embeds = lambda index: ROWS + 1
    engine.wait_until_ready(changed)
    engine.step(changed)

    assert engine.encoded == {"b": [0]}


def test_a_preempted_request_takes_its_load_with_it(engine: Engine) -> None:
    engine.wait_until_ready(request("b"))
    metadata = engine.step(request("b"), preempted=("b",))

    assert not metadata.loads and not engine.scheduler.promised(PICTURE) and PICTURE not in engine.device
    engine.wait_until_ready(request("b"))
    assert engine.step(request("b")).loads


def test_a_request_that_ends_while_its_picture_is_read_leaves_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hold, reading, go_on, found = engine.store.hold, threading.Event(), threading.Event(), []

    def slow_hold(*arguments: Any, **keywords: Any) -> Any:
        reading.set()
        assert go_on.wait(30)
        found.append(hold(*arguments, **keywords))
        return found[0]

    monkeypatch.setattr(engine.store, "hold", slow_hold)
    assert not engine.scheduler.ready(request("b"), 0)
    assert reading.wait(30)
    engine.scheduler.finished(request("b"))
    go_on.set()
    engine.scheduler.close()

    assert found and found[0] is not None and not list((tmp_path / "held").iterdir())


def test_what_another_request_encodes_for_a_preempted_one_is_saved(engine: Engine) -> None:
    """mmspec's patch hands the picture over behind the connector's back: it is encoded, and goes by the same key."""
    for asked in (request("b", OTHER), request("c", OTHER)):
        engine.wait_until_ready(asked)
    engine.scheduler.allocated(request("b", OTHER), 0)
    metadata = engine.scheduler.metadata(output(["c"]))
    engine.worker.save(metadata, {OTHER: FEATURES}, OTHER)
    engine.stored()

    engine.wait_until_ready(request("d", OTHER))
    assert engine.scheduler.has(OTHER)
    engine.scheduler.finished(request("d", OTHER))


def test_a_step_that_did_nothing_with_the_cache_reports_nothing_and_looks_at_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.wait_until_ready(request("b"))
    engine.step(request("b"))
    engine.worker.report()
    looked: list[int] = []
    counters = engine.store.counters

    def counting() -> Any:
        looked.append(1)
        return counters()

    monkeypatch.setattr(engine.store, "counters", counting)

    assert engine.worker.report() is None and not looked
    engine.store.contains(key := engine.scheduler.keyring.key(OTHER, None))  # type: ignore[arg-type]
    engine.store.missed(key)  # type: ignore[arg-type]
    report = engine.worker.report()
    assert report is not None and report.counters == {"disk": {"misses": 1}} and looked


def test_what_finds_no_room_on_the_device_is_counted(engine: Engine) -> None:
    engine.saver.close()
    engine.wait_until_ready(request("b", OTHER))
    engine.step(request("b", OTHER))

    assert engine.store.counters()["disk"]["skipped"] == 1


def test_a_picture_on_the_device_is_not_looked_up(engine: Engine) -> None:
    engine.wait_until_ready(request("b"))
    engine.step(request("b"))
    lookups = engine.store.counters()["disk"]["hits"]
    assert engine.scheduler.ready(request("c"), 0)
    assert engine.store.counters()["disk"]["hits"] == lookups and not engine.scheduler.has(PICTURE)

    engine.step(request("d", OTHER), freed=(PICTURE,))
    engine.wait_until_ready(request("c"))
    assert engine.scheduler.has(PICTURE)
    engine.scheduler.finished(request("c"))


def test_what_was_not_there_is_asked_for_again_once_encoded(engine: Engine) -> None:
    """A request that runs long must not keep others from what was saved since it asked."""
    engine.wait_until_ready(request("long", OTHER))
    engine.step(request("long", OTHER))
    engine.stored()
    engine.step(request("x", PICTURE), freed=(OTHER,))
    engine.wait_until_ready(request("new", OTHER))

    assert engine.scheduler.has(OTHER)


def test_a_prompt_whose_pictures_are_computed_waits_for_nothing(engine: Engine) -> None:
    assert engine.scheduler.ready(request("b"), 2 + ROWS)
    assert not engine.scheduler.has(PICTURE)


def test_in_doubt_about_the_weights_nothing_is_found_or_saved(engine: Engine) -> None:
    engine.wait_until_ready(request("b"))
    engine.scheduler.keyring.doubt()
    engine.scheduler.device_cleared()
    assert engine.scheduler.ready(request("b"), 0) and not engine.scheduler.has(PICTURE)

    assert not engine.step(request("b")).saves


def test_a_step_and_its_metadata_travel_together() -> None:
    """A worker in another process encodes what it adds to the step's inputs."""
    inputs: dict[str, list[int]] = {}
    step = SimpleNamespace(scheduled_encoder_inputs=inputs, metadata=StepMetadata(encoder_inputs=inputs))
    received = pickle.loads(pickle.dumps(("execute_model", (step,), {})))[1][0]

    received.metadata.encoder_inputs["a"] = [0]
    assert received.scheduled_encoder_inputs == {"a": [0]}


def test_reports_of_several_workers_add_up() -> None:
    first = WorkerReport({"a"}, set(), {"disk": {"hits": 1, "load_seconds": 0.5}})
    second = WorkerReport({"a", "b"}, {"x"}, {"disk": {"hits": 2}, "host": {"misses": 1}})

    both = first.aggregate(second)

    assert (both.done, both.failed) == ({"a", "b"}, {"x"})
    assert both.counters == {"disk": {"hits": 3, "load_seconds": 0.5}, "host": {"misses": 1}}
    assert not WorkerReport() and both


def test_saves_wait_in_bounded_memory(tmp_path: Path) -> None:
    started, release = threading.Event(), threading.Event()

    class Slow:
        def put(self, key: Any, entry: Any) -> bool:
            started.set()
            return release.wait(30)

    saver = Saver(Slow(), FEATURES.nbytes + 1)  # type: ignore[arg-type]
    assert saver.offer("first", FEATURES)  # type: ignore[arg-type]
    assert started.wait(30)
    assert not saver.offer("second", FEATURES)  # type: ignore[arg-type]
    release.set()
    assert saver.flush(30) and saver.offer("third", FEATURES)  # type: ignore[arg-type]
    saver.close()
    assert not saver.offer("too late", FEATURES)  # type: ignore[arg-type]
