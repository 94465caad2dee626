"""Prompts that are to be pruned are put off rather than cut, where that helps."""

from types import SimpleNamespace
from typing import Any

import pytest

from mmspec.encoders.fastv.scheduling import WholePrompts
from tests.unit.encoders.fastv.steps import new, output, place

BUDGET, ENCODER_BUDGET = 100, 50
CUT = 7


class Stock:
    """What of vLLM's scheduler is used: `cut` tokens are what its encoder budget leaves, or all of them."""

    def __init__(self, fastv: dict[str, Any] | None = None, threshold: int = 0) -> None:
        self.scheduler_config = SimpleNamespace(
            max_num_batched_tokens=BUDGET,
            max_num_scheduled_tokens=None,
            long_prefill_token_threshold=threshold,
        )
        self.vllm_config = SimpleNamespace(
            additional_config={"mmspec": {} if fastv is None else {"fastv": fastv}},
            scheduler_config=self.scheduler_config,
            speculative_config=None,
        )
        self.max_num_encoder_input_tokens = ENCODER_BUDGET
        self.cut: int | None = None
        self.running: list[Any] = []
        self.encoder_cache_manager = SimpleNamespace(cached={})

    def _try_schedule_encoder_inputs(
        self, request: Any, computed: int, tokens: int, budget: int, shift: int = 0
    ) -> Any:
        return [0], tokens if self.cut is None else self.cut, budget - 10, [], []


class Scheduler(WholePrompts, Stock):
    pass


def request(length: int, **arguments: Any) -> SimpleNamespace:
    return SimpleNamespace(
        num_prompt_tokens=length, sampling_params=SimpleNamespace(extra_args=arguments or None)
    )


PRUNED = {"fastv_keep": 0.5}


@pytest.mark.parametrize(
    ("asked", "room", "expected"),
    [
        (request(60, **PRUNED), 60, 60),  # fits
        (request(60, **PRUNED), 80, 80),  # fits with a part of an answer that is computed again
        (request(60, **PRUNED), 59, 0),  # others have taken a token: put off
        (request(160, **PRUNED), 100, 100),  # never fits: cut
        (request(60), 59, 59),  # not to be pruned: cut as ever
    ],
    ids=["fits", "fits with answer", "put off", "never fits", "unpruned"],
)
def test_a_prompt_is_put_off_only_where_it_will_fit(asked: Any, room: int, expected: int) -> None:
    scheduler = Scheduler({})

    assert scheduler._try_schedule_encoder_inputs(asked, 0, room, ENCODER_BUDGET)[1] == expected


def test_a_prompt_that_has_begun_goes_on() -> None:
    scheduler = Scheduler({})

    assert scheduler._try_schedule_encoder_inputs(request(60, **PRUNED), 1, 5, ENCODER_BUDGET)[1] == 5


def test_without_pruning_everything_passes_through() -> None:
    scheduler = Scheduler(None)

    assert scheduler._try_schedule_encoder_inputs(request(60, **PRUNED), 0, 5, ENCODER_BUDGET)[1] == 5
    scheduler.book(output({"a": 5}, (new("a", 60, (place(0, 9),), **PRUNED),)))
    assert scheduler.unpruned_prompts == 0


@pytest.mark.parametrize(("left", "expected"), [(ENCODER_BUDGET - 1, 0), (ENCODER_BUDGET, CUT)])
def test_when_the_encoder_has_no_room_it_matters_whether_others_took_it(left: int, expected: int) -> None:
    scheduler = Scheduler({})
    scheduler.cut = CUT

    assert scheduler._try_schedule_encoder_inputs(request(60, **PRUNED), 0, 60, left)[1] == expected


@pytest.mark.parametrize(("holder", "expected"), [("running", 0), ("waiting", CUT)])
def test_pictures_that_running_requests_hold_are_waited_for(holder: str, expected: int) -> None:
    """Those that wait hold theirs for as long as they are put off: waiting for them would never end."""
    scheduler = Scheduler({})
    scheduler.cut = CUT
    scheduler.running = [SimpleNamespace(request_id="running")]
    scheduler.encoder_cache_manager.cached = {"a picture": {holder}}

    assert scheduler._try_schedule_encoder_inputs(request(60, **PRUNED), 0, 60, ENCODER_BUDGET)[1] == expected


def test_a_threshold_below_the_prompt_cuts_it_in_any_case() -> None:
    scheduler = Scheduler({}, threshold=30)

    assert scheduler._try_schedule_encoder_inputs(request(60, **PRUNED), 0, 30, ENCODER_BUDGET)[1] == 30


def test_prompts_that_go_unpruned_are_counted_and_the_setting_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scheduler = Scheduler({})
    for name in ("a", "b"):
        scheduler.book(output({name: 100}, (new(name, 160, (place(0, 9),), **PRUNED),)))

    assert scheduler.unpruned_prompts == 2
    assert "(2 so far); raise --max-num-batched-tokens" in caplog.text
