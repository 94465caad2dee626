"""Which calls make an engine look at its weights again, and what it does then; the engine is a stand-in."""

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import pytest

from mmspec.encoders.harmless import leaves_weights_alone
from mmspec.patches.encoder_weights import LOOK_AT_WEIGHTS, NOTICE_CALLS, NOTICE_RESET, NOTICE_SLEEP

PICTURE, TEXT = SimpleNamespace(mm_features=[object()]), SimpleNamespace(mm_features=[])


class Connector:
    def __init__(self) -> None:
        self.weights_in_doubt = False
        self.settled: list[Any] = []
        self.cleared = 0

    def doubt_weights(self) -> None:
        self.weights_in_doubt = True

    def settle_weights(self, fingerprints: Any) -> None:
        self.settled.append(fingerprints)
        self.weights_in_doubt = False

    def device_cleared(self) -> None:
        self.cleared += 1


class Manager:
    """vLLM's encoder cache, with a picture that a running request needs and one that nobody does."""

    def __init__(self) -> None:
        self.cached: dict[str, set[str]] = {"needed": {"running"}, "unused": set()}
        self.num_embeds_by_hash = {"needed": 5, "unused": 3}
        self.freeable = OrderedDict(unused=3)
        self.freed: list[str] = []
        self.num_free_slots = 0


class Core:
    """What the patches touch of vLLM's `EngineCore`."""

    def __init__(self, connector: Any, *, busy: bool = False, paused: bool = False) -> None:
        self.done: list[str] = []
        self.paused, self.busy = paused, busy
        self.scheduler = SimpleNamespace(
            ec_connector=connector,
            has_unfinished_requests=lambda: self.busy,
            reset_encoder_cache=lambda: self.done.append("scheduler reset"),
            encoder_cache_manager=Manager(),
        )
        self.model_executor = SimpleNamespace(
            collective_rpc=lambda function: ["a fingerprint"],
            reset_encoder_cache=lambda: self.done.append("workers reset"),
        )

    def is_scheduler_paused(self) -> bool:
        return self.paused

    def collective_rpc(
        self, method: Any, timeout: float | None = None, args: Any = (), kwargs: Any = None
    ) -> str:
        return f"{method} {args}"

    def reset_encoder_cache(self) -> None:
        self.done.append("reset")

    def sleep(self, level: int = 1, mode: str = "abort") -> None:
        self.done.append(f"sleep {level} {mode}")

    def add_request(self, request: Any, request_wave: int = 0) -> None:
        self.done.append("added")


call = NOTICE_CALLS.wrap(Core.collective_rpc)
reset = NOTICE_RESET.wrap(Core.reset_encoder_cache)
sleep = NOTICE_SLEEP.wrap(Core.sleep)
add = LOOK_AT_WEIGHTS.wrap(Core.add_request)


@pytest.mark.parametrize(
    ("method", "doubted"),
    [
        ("update_weights", True),
        ("anything_of_theirs", True),
        (print, True),
        ("profile", False),
        ("sleep", False),
    ],
)
def test_calls_that_may_load_weights_put_them_in_doubt(method: Any, doubted: bool) -> None:
    connector = Connector()

    assert call(Core(connector), method, args=(1,)) == f"{method} (1,)"
    assert connector.weights_in_doubt is doubted


@pytest.mark.parametrize(("paused", "doubted"), [(False, True), (True, False)])
def test_emptying_the_cache_is_what_follows_an_update(paused: bool, doubted: bool) -> None:
    """But for pausing and sleeping, which empty it on their own."""
    connector = Connector()
    core = Core(connector, paused=paused)

    reset(core)

    assert core.done == ["reset"] and connector.cleared == 1
    assert connector.weights_in_doubt is doubted


def test_in_doubt_the_next_picture_waits_for_a_look_at_the_weights() -> None:
    connector = Connector()
    core = Core(connector)
    connector.doubt_weights()
    add(core, TEXT)
    assert core.done == ["added"] and not connector.settled

    add(core, PICTURE)
    add(core, PICTURE)

    assert core.done == ["added", "scheduler reset", "workers reset", "added", "added"]
    assert connector.settled == [["a fingerprint"]] and connector.cleared == 1


def test_the_cache_is_not_emptied_under_running_requests() -> None:
    connector = Connector()
    core = Core(connector, busy=True)
    connector.doubt_weights()

    add(core, PICTURE)

    assert core.done == ["added"] and connector.settled
    manager = core.scheduler.encoder_cache_manager
    assert set(manager.cached) == {"needed"} and manager.freed == ["unused"] and manager.num_free_slots == 3


def test_what_running_requests_needed_of_old_weights_goes_when_they_are_done() -> None:
    """And what has been encoded since stays."""
    connector = Connector()
    core = Core(connector, busy=True)
    manager = core.scheduler.encoder_cache_manager
    connector.doubt_weights()
    add(core, PICTURE)
    manager.cached |= {"new": set()}
    manager.num_embeds_by_hash["new"] = manager.freeable["new"] = 1
    add(core, PICTURE)
    assert set(manager.cached) == {"needed", "new"}

    manager.cached["needed"].clear()
    manager.freeable["needed"] = 5
    add(core, PICTURE)

    assert set(manager.cached) == {"new"} and manager.freed == ["unused", "needed"]
    assert set(manager.num_embeds_by_hash) == {"new"} and manager.num_free_slots == 8
    manager.cached["needed"], manager.num_embeds_by_hash["needed"] = set(), 5
    manager.freeable["needed"] = 5
    add(core, PICTURE)
    assert set(manager.cached) == {"new", "needed"}, "encoded again, with the new weights"


def test_weights_that_cannot_be_looked_at_do_not_end_the_engine() -> None:
    connector = Connector()
    core = Core(connector)

    def fail(function: Any) -> list[str]:
        raise AttributeError("no language model here")

    core.model_executor.collective_rpc = fail
    connector.doubt_weights()
    add(core, PICTURE)

    assert connector.settled == [[None]] and core.done[-1] == "added"


@pytest.mark.parametrize(("level", "doubted"), [(0, False), (1, False), (2, True)])
def test_a_sleep_that_throws_weights_away_puts_them_in_doubt(level: int, doubted: bool) -> None:
    connector = Connector()
    core = Core(connector)

    sleep(core, level, "wait")

    assert core.done == [f"sleep {level} wait"] and connector.weights_in_doubt is doubted


def test_functions_that_say_that_they_leave_weights_alone_are_believed() -> None:
    connector = Connector()
    call(Core(connector), "apply_model", args=(leaves_weights_alone(lambda model: None),))
    call(Core(connector), leaves_weights_alone(lambda worker: None))
    assert not connector.weights_in_doubt

    call(Core(connector), "apply_model", args=(lambda model: None,))
    assert connector.weights_in_doubt


@pytest.mark.parametrize("connector", [None, object()], ids=["none", "another"])
def test_engines_without_our_connector_are_left_alone(connector: Any) -> None:
    core = Core(connector)

    assert call(core, "update_weights") == "update_weights ()"
    reset(core)
    sleep(core, 2)
    add(core, PICTURE)

    assert core.done == ["reset", "sleep 2 abort", "added"]
