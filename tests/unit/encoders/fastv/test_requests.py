"""What is written into a request, and which are refused."""

from types import SimpleNamespace
from typing import Any

import pytest

from mmspec.encoders.fastv.budget import Budget
from mmspec.encoders.fastv.requests import Door, asked_budget
from mmspec.encoders.fastv.requests import settle as settle_at
from mmspec.encoders.fastv.settings import FastVSettings
from mmspec.encoders.fastv.unpruned import NAME, TOO_LONG
from mmspec.errors import MmspecError

LONGEST = 100
HALF = FastVSettings(keep=0.5)


def request(
    *, pictures: int = 1, length: int = 10, salt: str | None = None, resumable: bool = False, **params: Any
) -> SimpleNamespace:
    """The fields of vLLM's `EngineCoreRequest` that are read and written."""
    sampling: dict[str, Any] = {
        "extra_args": None,
        "skip_reading_prefix_cache": False,
        "prompt_logprobs": None,
        "prompt_logprob_token_ids": None,
    }
    return SimpleNamespace(
        sampling_params=SimpleNamespace(**(sampling | params)),
        mm_features=[SimpleNamespace(modality="image")] * pictures or None,
        prompt_token_ids=[0] * length,
        cache_salt=salt,
        resumable=resumable,
        prompt_embeds=None,
    )


def engine(fastv: dict[str, Any] | None, **scheduler: int) -> SimpleNamespace:
    """The fields of vLLM's configuration that are read."""
    limits = {"max_num_batched_tokens": LONGEST, "max_num_scheduled_tokens": None}
    limits |= {"long_prefill_token_threshold": 0} | scheduler
    return SimpleNamespace(
        additional_config={"mmspec": {} if fastv is None else {"fastv": fastv}},
        model_config=SimpleNamespace(served_model_name="a model", model="/a/folder"),
        scheduler_config=SimpleNamespace(**limits),
        speculative_config=None,
    )


def settle(one: Any, budget: Budget | None, settings: FastVSettings, **scheduler: int) -> None:
    door = Door.of(engine(vars(settings), **scheduler))
    assert door is not None and door.settings == settings
    settle_at(one, budget, door)


def counted(reason: str) -> float:
    from prometheus_client import REGISTRY

    labels = {"model_name": "a model", "reason": reason}
    return REGISTRY.get_sample_value(f"{NAME}_total", labels) or 0.0


def test_a_prompt_longer_than_a_step_goes_on_whole_is_counted_and_shares_its_blocks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before, longest, longer = counted(TOO_LONG), request(length=100), request(length=101)
    settle(longest, None, HALF)
    settle(longer, Budget(keep=0.25), HALF)

    assert longest.sampling_params.extra_args == {"fastv_keep": 0.5} and longest.cache_salt
    assert longer.sampling_params.extra_args is None and longer.cache_salt is None
    assert not longer.sampling_params.skip_reading_prefix_cache
    assert counted(TOO_LONG) == before + 1
    line = "a prompt of 101 tokens is longer than a step of 100 and is not pruned; raise --max-num-batched-tokens"
    assert f"{line} (1 so far)" in caplog.text


@pytest.mark.parametrize(
    ("scheduler", "longest", "named"),
    [
        ({}, 100, "--max-num-batched-tokens"),
        ({"max_num_scheduled_tokens": 90}, 90, "--max-num-batched-tokens"),
        ({"long_prefill_token_threshold": 30}, 30, "--long-prefill-token-threshold"),
        ({"long_prefill_token_threshold": 300}, 100, "--max-num-batched-tokens"),
    ],
    ids=["step", "drafts take some", "threshold", "high threshold"],
)
def test_the_setting_to_raise_is_the_one_that_limits(
    scheduler: dict[str, int], longest: int, named: str
) -> None:
    door = Door.of(engine({}, **scheduler))

    assert door is not None and (door.longest, door.raise_for_more) == (longest, named)
    assert Door.of(engine(None)) is None


def test_the_log_tells_of_the_first_the_tenth_and_so_on(caplog: pytest.LogCaptureFixture) -> None:
    door = Door.of(engine({}))
    assert door is not None
    for _ in range(12):
        settle_at(request(length=101), None, door)

    assert [line[-11:] for line in caplog.messages] == [" (1 so far)", "(10 so far)"]


def test_a_pruned_prompt_shares_its_blocks_with_nobody() -> None:
    first, second = request(salt="tenant"), request(salt="tenant")
    for one in (first, second):
        settle(one, None, HALF)

    assert first.cache_salt != second.cache_salt
    assert first.cache_salt.startswith("tenant")
    assert first.sampling_params.skip_reading_prefix_cache
    assert first.sampling_params.extra_args == {"fastv_keep": 0.5}


@pytest.mark.parametrize(
    ("one", "budget"),
    [(request(), Budget()), (request(pictures=0), None), (request(pictures=0), Budget(keep=0.5))],
    ids=["keeps all", "text", "text that asks"],
)
def test_an_unpruned_prompt_goes_on_sharing(one: SimpleNamespace, budget: Budget | None) -> None:
    settle(one, budget, HALF)

    assert one.cache_salt is None
    assert not one.sampling_params.skip_reading_prefix_cache
    assert not one.sampling_params.extra_args


def test_a_request_wins_over_the_engine_and_keeps_its_other_arguments() -> None:
    given = {"fastv_keep": 0.25, "other": 1}
    one = request(extra_args=given)

    settle(one, Budget(keep=0.25), FastVSettings(keep_tokens=9))

    assert one.sampling_params.extra_args == {"other": 1, "fastv_keep": 0.25}
    assert given == {"fastv_keep": 0.25, "other": 1}


def test_a_number_of_tokens_is_written_too() -> None:
    one = request()
    settle(one, None, FastVSettings(keep_tokens=9))

    assert one.sampling_params.extra_args == {"fastv_keep_tokens": 9}


@pytest.mark.parametrize(
    ("one", "named"),
    [(request(prompt_logprobs=1), "prompt_logprobs"), (request(resumable=True), "input that goes on")],
    ids=["logprobs", "resumable"],
)
def test_what_pruning_would_spoil_is_refused_when_asked_for_and_left_alone_otherwise(
    one: SimpleNamespace, named: str
) -> None:
    with pytest.raises(MmspecError, match=f"a prompt with {named} cannot be pruned; give fastv_keep=1.0"):
        settle(one, Budget(keep=0.5), HALF)

    before = counted(named)
    settle(one, None, HALF)
    assert one.sampling_params.extra_args is None and counted(named) == before + 1


def test_an_engine_that_does_not_prune_says_so() -> None:
    asked = SimpleNamespace(extra_args={"fastv_keep": 0.5})

    with pytest.raises(MmspecError, match="fastv_keep: this engine does not prune; start it with fastv"):
        asked_budget(asked, None)

    assert asked_budget(asked, HALF) == Budget(keep=0.5)
    assert asked_budget(SimpleNamespace(extra_args={"fastv_keep": 1}), None) == Budget()
    assert asked_budget(SimpleNamespace(), None) is None  # parameters of another kind of request
