"""What `mmspec tune` makes of its measurements."""

import pytest

from mmspec.bench.speed import Speed, fastest
from mmspec.bench.tune import advise


def speeds(**by_k: float) -> dict[int, Speed]:
    return {
        int(k.removeprefix("k")): Speed(2.0, speedup, (speedup, speedup), int(k.removeprefix("k")), 8)
        for k, speedup in by_k.items()
    }


def test_each_batch_size_gets_its_fastest_number_of_tokens_until_the_next_one() -> None:
    advice = advise({8: speeds(k2=1.2, k4=1.1), 1: speeds(k2=1.5, k4=1.9)})

    assert advice.schedule == [(1, 7, 4), (8, 8, 2)]
    assert advice.speculative_options() == {
        "num_speculative_tokens": 4,
        "num_speculative_tokens_per_batch_size": [[1, 7, 4], [8, 8, 2]],
    }


def test_a_size_at_which_drafting_is_slower_is_told_not_to_draft() -> None:
    assert advise({1: speeds(k2=1.4), 4: speeds(k2=0.9)}).schedule == [(1, 3, 2), (4, 4, 0)]


def test_drafting_that_never_pays_is_not_recommended() -> None:
    assert advise({1: speeds(k2=0.99, k4=1.0)}).speculative_options() == {}


def test_one_number_for_all_sizes_needs_no_schedule() -> None:
    advice = advise({1: speeds(k3=1.4), 4: speeds(k3=1.2)})

    assert advice.speculative_options() == {"num_speculative_tokens": 3}


def test_of_two_alike_the_cheaper_draft_is_taken() -> None:
    assert fastest(speeds(k4=1.5, k2=1.5)) == 2


def test_vllm_takes_the_schedule() -> None:
    utils = pytest.importorskip("vllm.v1.spec_decode.dynamic.utils")
    advice = advise({1: speeds(k2=1.2, k4=1.9), 8: speeds(k2=1.2, k4=1.1), 16: speeds(k2=0.9)})

    lookup = utils.build_dynamic_sd_schedule_lookup(advice.schedule, 20, advice.num_speculative_tokens)

    assert lookup[1:] == [4] * 7 + [2] * 8 + [0] * 5
