"""What is written into a request, and which are refused."""

from types import SimpleNamespace
from typing import Any

import pytest

from mmspec.encoders.fastv.budget import Budget
from mmspec.encoders.fastv.requests import asked_budget, settle
from mmspec.encoders.fastv.settings import FastVSettings
from mmspec.errors import MmspecError

HALF = FastVSettings(keep=0.5)


def request(
    *, pictures: int = 1, salt: str | None = None, resumable: bool = False, **params: Any
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
        cache_salt=salt,
        resumable=resumable,
        prompt_embeds=None,
    )


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

    settle(one, None, HALF)
    assert one.sampling_params.extra_args is None


def test_an_engine_that_does_not_prune_says_so() -> None:
    asked = SimpleNamespace(extra_args={"fastv_keep": 0.5})

    with pytest.raises(MmspecError, match="fastv_keep: this engine does not prune; start it with fastv"):
        asked_budget(asked, None)

    assert asked_budget(asked, HALF) == Budget(keep=0.5)
    assert asked_budget(SimpleNamespace(extra_args={"fastv_keep": 1}), None) == Budget()
    assert asked_budget(SimpleNamespace(), None) is None  # parameters of another kind of request


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("fastv_kep", "did you mean 'fastv_keep'"),
        ("fast_keep", "did you mean 'fastv_keep'"),
        ("fastv-keep", "did you mean 'fastv_keep'"),
        ("FastV_Keep", "did you mean 'fastv_keep'"),
        ("fastv_keep_token", "did you mean 'fastv_keep_tokens'"),
        ("fastv", "did you mean 'fastv_keep'"),
        ("fastv_proportion", "fastv_keep"),
    ],
)
@pytest.mark.parametrize("settings", [None, HALF], ids=["not pruning", "pruning"])
def test_a_misspelt_name_is_refused(name: str, meant: str, settings: FastVSettings | None) -> None:
    with pytest.raises(MmspecError, match=f"^{name}: unknown argument of a request; .*{meant}"):
        asked_budget(SimpleNamespace(extra_args={name: 0.5}), settings)


@pytest.mark.parametrize("name", ["kv_transfer_params", "keep", "top_k", "min_tokens", "mmspec", "speed", ""])
def test_names_of_others_pass(name: str) -> None:
    assert asked_budget(SimpleNamespace(extra_args={name: 0.5}), None) is None
