"""Statistics of one request, read from the output of any vLLM engine."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mmspec.heads.evaluate import mean_acceptance_length
from mmspec.serving.trace import Step

REPORT_KEY = "mmspec"
STEPS_KEY = "steps"

TIERS = ("prefix", "device", "host", "disk", "remote")
"""Where features come from, the nearest first: `prefix` means that their KV was still cached, so that they were not
needed at all; `device` is vLLM's own cache, and the rest are the tiers of ours."""


@dataclass(frozen=True)
class EncoderCacheStats:
    """Pictures of the request whose features were there already (hits) or had to be encoded (misses).

    `tier` says where hits came from, the farthest of `TIERS` where they differ. All None when the engine does not
    report them.
    """

    hits: int | None = None
    misses: int | None = None
    tier: str | None = None


@dataclass(frozen=True)
class VisualTokenStats:
    """Visual tokens in the prompt, and those that deeper layers saw; None when the engine reports neither."""

    seen: int | None = None
    kept: int | None = None


@dataclass(frozen=True)
class RequestStats:
    """What one request cost.

    Attributes:
        mean_acceptance_length: tokens per verification step, the bonus token included; 1.0 without drafting.
        drafts: verification steps that had drafted tokens.
        draft_tokens: drafted tokens in all.
        accepted_tokens: drafted tokens that the target accepted.
        accepted_per_position: how many drafts had their first, second, ... token accepted.
        ttft_ms: from the request's arrival, before its pictures are decoded, to its first token.
        tpot_ms: mean time between tokens after the first; None for a single token.
        intake: what was changed about the request's pictures before the processor saw them, a sentence each.
    """

    mean_acceptance_length: float = 1.0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    encoder_cache: EncoderCacheStats = EncoderCacheStats()
    visual_tokens: VisualTokenStats = VisualTokenStats()
    intake: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def request_stats(output: Any, intake: Sequence[str] = ()) -> RequestStats:
    """The statistics that a finished `vllm.RequestOutput` carries, and what its pictures' intake noted.

    Acceptance needs the engine argument `per_request_spec_decode_metrics`, times `disable_log_stats=False`,
    the rest our scheduler; `mmspec.engine_kwargs` sets the first and the last.
    """
    report = (output.ec_transfer_params or {}).get(REPORT_KEY)
    cache, visual = decode_report(report) if report else (EncoderCacheStats(), VisualTokenStats())
    if (
        len(output.outputs) > 1
    ):  # the report is that of one sequence, and the others found its pictures encoded
        cache = EncoderCacheStats()
    ttft_ms, tpot_ms = _times(output.metrics)
    return RequestStats(
        **_acceptance([c.spec_decode_metrics for c in output.outputs if c.spec_decode_metrics is not None]),
        ttft_ms=ttft_ms,
        tpot_ms=tpot_ms,
        encoder_cache=cache,
        visual_tokens=visual,
        intake=list(intake),
    )


def encode_report(
    cache: EncoderCacheStats, visual: VisualTokenStats, steps: Sequence[Step] | None = None
) -> dict[str, Any]:
    """What the scheduler sends with a finished request.

    Args:
        steps: where its tokens came from, if that is to be told.
    """
    report: dict[str, Any] = {"encoder_cache": asdict(cache), "visual_tokens": asdict(visual)}
    return report if steps is None else report | {STEPS_KEY: [step.to_record() for step in steps]}


def decode_report(report: dict[str, Any]) -> tuple[EncoderCacheStats, VisualTokenStats]:
    """The figures in what `encode_report` made."""
    return EncoderCacheStats(**report["encoder_cache"]), VisualTokenStats(**report["visual_tokens"])


def _acceptance(sequences: list[Any]) -> dict[str, Any]:
    """Sums vLLM's histograms, `histogram[j]` = drafts with j accepted tokens, over a request's sequences."""
    width = max((len(sequence.histogram) for sequence in sequences), default=0)
    histogram = [sum(s.histogram[j] for s in sequences if j < len(s.histogram)) for j in range(width)]
    drafts = sum(histogram)
    accepted = sum(j * count for j, count in enumerate(histogram))
    return {
        "mean_acceptance_length": mean_acceptance_length(accepted, drafts),
        "drafts": drafts,
        "draft_tokens": sum(sequence.num_draft_tokens for sequence in sequences),
        "accepted_tokens": accepted,
        "accepted_per_position": [sum(histogram[position + 1 :]) for position in range(max(width - 1, 0))],
    }


def _times(metrics: Any) -> tuple[float | None, float | None]:
    """Milliseconds to the first token and between later tokens, as vLLM measures them."""
    if metrics is None or not metrics.num_generation_tokens:
        return None, None
    later = metrics.num_generation_tokens - 1
    decode = metrics.last_token_ts - metrics.first_token_ts  # seconds
    return metrics.first_token_latency * 1e3, decode * 1e3 / later if later else None
