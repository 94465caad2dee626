"""vLLM's scheduler, reporting with a finished request what its pictures cost, and where its tokens came from.

vLLM 0.32 has no metric of encoder-cache hits. The scheduler decides which pictures are encoded and for whom,
and its outputs reach the user's process with every engine layout, so this is where they are counted.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vllm.config import VllmConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

from mmspec.encoders.fastv.prompt import VISUAL
from mmspec.encoders.fastv.scheduling import WholePrompts
from mmspec.serving.asked import Asked, settled
from mmspec.serving.drafting import DraftChoice
from mmspec.serving.trace import Step
from mmspec.stats import REPORT_KEY, TIERS, EncoderCacheStats, VisualTokenStats, encode_report


@dataclass
class _Reported:
    """What is known about one unfinished request that is to be reported, and its pictures, if any."""

    request: Request
    steps: list[Step] | None = None  # where its tokens came from, if that was asked
    encoded: set[int] = field(default_factory=set)  # indices of features that were encoded for this request
    loaded: dict[int, str] = field(default_factory=dict)  # the tiers of those that were loaded for it
    cached_tokens: int = 0  # length of the prompt's prefix whose KV was cached already

    @property
    def may_end_outside(self) -> bool:
        """Whether the user's process may end the request, at a stop string, while it goes on here."""
        sampling = self.request.sampling_params
        return bool(sampling is not None and sampling.stop)

    def report(self, dropped: int) -> dict[str, Any]:
        """What the pictures cost; `dropped` of their tokens went no further than FastV's layer."""
        places = {
            index: feature.mm_position
            for index, feature in enumerate(self.request.mm_features)
            if feature.modality in VISUAL
        }
        reused = {index for index in places if index not in self.encoded}
        tiers = {tier for index, tier in self.loaded.items() if index in reused}
        for index in reused - self.loaded.keys():
            # A picture inside the cached prefix was not even looked up.
            looked_up = places[index].offset + places[index].length > self.cached_tokens
            tiers.add("device" if looked_up else "prefix")
        tier = max(tiers, key=TIERS.index, default=None)
        seen = sum(place.get_num_embeds() for place in places.values())
        cache = EncoderCacheStats(hits=len(reused), misses=len(places) - len(reused), tier=tier)
        return encode_report(cache, VisualTokenStats(seen=seen, kept=seen - dropped), self.steps)


class Reports(WholePrompts):
    """Mixed into a scheduler: counts encoder runs per request and attaches the report to its last output."""

    reports_all: ClassVar[bool] = True  # otherwise only those that ask

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._reported: dict[str, _Reported] = {}  # by request id

    def add_request(self, request: Request) -> None:
        params = request.sampling_params
        asked, _ = settled(params.extra_args if params is not None else None)
        # A session that goes on with new input comes back under its id; it is not counted.
        if (asked is not None or self.reports_all) and not request.resumable:
            steps: list[Step] | None = [] if (asked or Asked()).tokens else None
            self._reported[request.request_id] = _Reported(request, steps)
        super().add_request(request)  # type: ignore[misc]

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        self.book(scheduler_output)
        if not self._reported:
            return super().update_from_output(scheduler_output, model_runner_output)  # type: ignore[misc]
        self._count_pictures(scheduler_output, model_runner_output)
        verified = self._verified(scheduler_output, model_runner_output)
        by_client = super().update_from_output(scheduler_output, model_runner_output)  # type: ignore[misc]
        for outputs in by_client.values():
            for output in outputs.outputs:
                if reported := self._reported.get(output.request_id):
                    if reported.steps is not None and output.request_id in verified:
                        drafted, accepted = verified[output.request_id]
                        reported.steps.append(Step(drafted, accepted, len(output.new_token_ids)))
                    self._note(output, reported)
        return by_client

    def finish_requests(self, request_ids: str | Iterable[str] | None, *args: Any, **kwargs: Any) -> Any:
        if request_ids is None:
            self._reported.clear()
        else:
            request_ids = [request_ids] if isinstance(request_ids, str) else list(request_ids)
            for request_id in request_ids:
                self._reported.pop(request_id, None)
        return super().finish_requests(request_ids, *args, **kwargs)  # type: ignore[misc]

    def _verified(
        self, scheduled: SchedulerOutput, ran: ModelRunnerOutput
    ) -> dict[str, tuple[tuple[int, ...], int]]:
        """What was drafted, and how much of it accepted, for requests that are told so; before vLLM cuts off what
        lies behind the answer's end."""
        drafted, sampled = scheduled.scheduled_spec_decode_tokens, ran.sampled_token_ids
        told = [name for name, reported in self._reported.items() if reported.steps is not None]
        rows = {name: ran.req_id_to_index[name] for name in told if sampled and name in ran.req_id_to_index}
        return {
            name: (tuple(drafted.get(name, ())), max(len(sampled[row]) - 1, 0)) for name, row in rows.items()
        }

    def _count_pictures(self, scheduled: SchedulerOutput, ran: ModelRunnerOutput) -> None:
        for request_id, indices in scheduled.scheduled_encoder_inputs.items():
            if reported := self._reported.get(request_id):
                reported.encoded.update(indices)
        told = ran.ec_connector_output and ran.ec_connector_output.ec_connector_worker_meta
        failed = getattr(told, "failed", ())
        for load in getattr(scheduled.ec_connector_metadata, "loads", ()):
            if reported := self._reported.get(load.request_id):
                if load.identifier in failed:
                    reported.encoded.add(load.index)
                else:
                    reported.loaded[load.index] = load.held.found

    def _note(self, output: EngineCoreOutput, reported: _Reported) -> None:
        if output.prefill_stats is not None:
            reported.cached_tokens = output.prefill_stats.num_cached_tokens
        if output.finished:
            del self._reported[output.request_id]
        if reported.may_end_outside:
            output.spec_decode_metrics = reported.request.spec_decode_metrics
        if output.finished or reported.may_end_outside:
            dropped = self.fastv_book.dropped(output.request_id) if self.fastv_book else 0
            # The one free-form mapping that vLLM hands through to RequestOutput untouched.
            output.ec_transfer_params = {
                **(output.ec_transfer_params or {}),
                REPORT_KEY: reported.report(dropped),
            }


class ReportingScheduler(Reports, DraftChoice, Scheduler):
    """For engines that wait for each step, as on a CPU."""


class ReportingAsyncScheduler(Reports, DraftChoice, AsyncScheduler):
    """For engines that schedule the next step while the last one runs."""


class AskedScheduler(ReportingScheduler):
    """Reports on requests that ask for it, and costs the others nothing."""

    reports_all = False


class AskedAsyncScheduler(ReportingAsyncScheduler):
    """Reports on requests that ask for it, and costs the others nothing."""

    reports_all = False


def build_scheduler(vllm_config: VllmConfig, **kwargs: Any) -> Scheduler:
    """vLLM's own choice of its two schedulers, reporting on every request. Called like a class, through
    `scheduler_cls`."""
    kind = ReportingAsyncScheduler if vllm_config.scheduler_config.async_scheduling else ReportingScheduler
    return kind(vllm_config=vllm_config, **kwargs)


def build_asked_scheduler(vllm_config: VllmConfig, **kwargs: Any) -> Scheduler:
    """The same for servers: reports on requests that ask for it."""
    kind = AskedAsyncScheduler if vllm_config.scheduler_config.async_scheduling else AskedScheduler
    return kind(vllm_config=vllm_config, **kwargs)
