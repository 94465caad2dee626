"""How many visual tokens stay, and what a request may say about it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmspec.encoders.fastv.budget import Budget, requested_budget
from mmspec.errors import MmspecError


@settings(deadline=None)  # a busy machine is no fault
@given(st.integers(1, 5000), st.floats(0, 1, exclude_min=True))
def test_the_share_is_met_to_the_nearest_token_and_never_none(visual: int, keep: float) -> None:
    kept = Budget(keep=keep).kept(visual)

    assert 1 <= kept <= visual
    assert abs(kept - keep * visual) <= 0.5 or (kept == 1 and keep * visual < 0.5)


@pytest.mark.parametrize(("visual", "tokens", "kept"), [(10, 3, 3), (2, 3, 2), (10, 10, 10)])
def test_a_number_is_a_ceiling(visual: int, tokens: int, kept: int) -> None:
    assert Budget(tokens=tokens).kept(visual) == kept


@pytest.mark.parametrize("budget", [Budget(), Budget(keep=0.25), Budget(tokens=7)])
def test_arguments_stand_for_their_budget(budget: Budget) -> None:
    assert requested_budget(budget.to_arguments()) == budget


@pytest.mark.parametrize("arguments", [None, {}, {"kv_transfer_params": {}}])
def test_a_request_may_say_nothing(arguments: dict[str, object] | None) -> None:
    assert requested_budget(arguments) is None


@pytest.mark.parametrize("keep", [0, -0.5, 1.01, float("nan"), float("inf"), "0.5", True, [0.5]])
def test_a_share_that_means_nothing_is_refused(keep: object) -> None:
    with pytest.raises(MmspecError, match=r"fastv_keep: .* is no share; give a number above 0 and up to 1"):
        requested_budget({"fastv_keep": keep})


@pytest.mark.parametrize("tokens", [0, -1, 2.5, "3", True])
def test_a_number_that_means_nothing_is_refused(tokens: object) -> None:
    with pytest.raises(MmspecError, match=r"fastv_keep_tokens: .* give a whole number from 1"):
        requested_budget({"fastv_keep_tokens": tokens})


def test_share_and_number_together_are_refused() -> None:
    with pytest.raises(MmspecError, match="give only one of them"):
        requested_budget({"fastv_keep": 0.5, "fastv_keep_tokens": 3})
