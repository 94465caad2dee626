"""Statistics of a request, from what vLLM attaches to its output."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from mmspec.stats import EncoderCacheStats, RequestStats, VisualTokenStats, encode_report, request_stats


@dataclass
class Output:
    """The parts of `vllm.RequestOutput` that are read."""

    outputs: list[Any] = field(default_factory=lambda: [SimpleNamespace(spec_decode_metrics=None)])
    metrics: Any = None
    ec_transfer_params: dict[str, Any] | None = None


def drafted(histogram: list[int], draft_tokens: int) -> Any:
    """One sequence whose drafts had 0, 1, 2, ... tokens accepted as often as `histogram` says."""
    return SimpleNamespace(
        spec_decode_metrics=SimpleNamespace(histogram=histogram, num_draft_tokens=draft_tokens)
    )


def test_without_drafting_the_acceptance_length_is_one() -> None:
    assert request_stats(Output()) == RequestStats()
    assert request_stats(Output()).mean_acceptance_length == 1.0


def test_acceptance_counts_the_bonus_token() -> None:
    # Four drafts of three tokens: none, one, one and three accepted.
    stats = request_stats(Output([drafted([1, 2, 0, 1], 12)]))

    assert stats.drafts == 4
    assert stats.draft_tokens == 12
    assert stats.accepted_tokens == 5
    assert stats.mean_acceptance_length == pytest.approx(1 + 5 / 4)
    assert stats.accepted_per_position == [3, 1, 1]


def test_sequences_of_one_request_are_summed() -> None:
    stats = request_stats(Output([drafted([1, 1], 2), drafted([0, 2], 2)]))

    assert (stats.drafts, stats.accepted_tokens, stats.accepted_per_position) == (4, 3, [3])


def test_drafting_that_never_drafted_is_no_division_by_zero() -> None:
    stats = request_stats(Output([drafted([0, 0, 0], 0)]))

    assert (stats.mean_acceptance_length, stats.accepted_per_position) == (1.0, [0, 0])


def test_times_are_in_milliseconds() -> None:
    metrics = SimpleNamespace(
        num_generation_tokens=5, first_token_latency=0.25, first_token_ts=10.0, last_token_ts=10.4
    )

    stats = request_stats(Output(metrics=metrics))

    assert stats.ttft_ms == pytest.approx(250)
    assert stats.tpot_ms == pytest.approx(100)


def test_a_single_token_has_no_time_between_tokens() -> None:
    metrics = SimpleNamespace(
        num_generation_tokens=1, first_token_latency=0.25, first_token_ts=10.0, last_token_ts=10.0
    )

    assert request_stats(Output(metrics=metrics)).tpot_ms is None


def test_a_report_of_the_scheduler_is_read() -> None:
    cache, visual = EncoderCacheStats(hits=1, misses=2, tier="device"), VisualTokenStats(seen=60, kept=60)

    stats = request_stats(Output(ec_transfer_params={"mmspec": encode_report(cache, visual), "other": 1}))

    assert (stats.encoder_cache, stats.visual_tokens) == (cache, visual)


def test_without_a_report_nothing_is_claimed() -> None:
    assert request_stats(Output(ec_transfer_params={"other": 1})).encoder_cache.hits is None
