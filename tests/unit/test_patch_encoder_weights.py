"""Which calls make an engine look at its weights again, and what it does then; the engine is a stand-in."""

from types import SimpleNamespace
from typing import Any

import pytest

from mmspec.patches.encoder_weights import LOOK_AT_WEIGHTS, NOTICE_CALLS, NOTICE_RESET

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


class Core:
    """What the patches touch of vLLM's `EngineCore`."""

    def __init__(self, connector: Any, *, busy: bool = False, paused: bool = False) -> None:
        self.done: list[str] = []
        self.paused = paused
        self.scheduler = SimpleNamespace(
            ec_connector=connector,
            has_unfinished_requests=lambda: busy,
            reset_encoder_cache=lambda: self.done.append("scheduler reset"),
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

    def add_request(self, request: Any, request_wave: int = 0) -> None:
        self.done.append("added")


call = NOTICE_CALLS.wrap(Core.collective_rpc)
reset = NOTICE_RESET.wrap(Core.reset_encoder_cache)
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


@pytest.mark.parametrize("connector", [None, object()], ids=["none", "another"])
def test_engines_without_our_connector_are_left_alone(connector: Any) -> None:
    core = Core(connector)

    assert call(core, "update_weights") == "update_weights ()"
    reset(core)
    add(core, PICTURE)

    assert core.done == ["reset", "added"]
