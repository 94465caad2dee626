"""Lets a request do without drafting: `mmspec_draft: false` among its extra arguments."""

from typing import Any

from mmspec.serving.asked import settled


class DraftChoice:
    """Mixed into a scheduler of vLLM's; does nothing while every request takes drafts.

    Where no request of a step wants them, the step drafts nothing, as vLLM does by itself where drafts of length 0 are
    configured for a batch size: an EAGLE-3 head still makes the pass that keeps its KV in step with the text, so that
    others can go on from the same prefix. Beside requests that draft, what is drafted for this one is not verified.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._undrafted: set[str] = set()
        # Ranks of data parallelism must agree on the draft's passes, and each schedules for itself.
        config: Any = self.vllm_config  # type: ignore[attr-defined]
        self._may_skip_drafting = config.parallel_config.data_parallel_size == 1

    def add_request(self, request: Any) -> None:
        params = request.sampling_params
        _, drafts = settled(params.extra_args if params is not None else None)
        if not drafts:
            self._undrafted.add(request.request_id)
        super().add_request(request)  # type: ignore[misc]

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        super().update_draft_token_ids(draft_token_ids)  # type: ignore[misc]
        self._drop_drafts()

    def _update_after_schedule(self, scheduler_output: Any) -> None:
        if self._undrafted and self._may_skip_drafting:
            scheduled = scheduler_output.num_scheduled_tokens
            if scheduled and scheduled.keys() <= self._undrafted:
                scheduler_output.num_spec_tokens_to_schedule = 0
        super()._update_after_schedule(scheduler_output)  # type: ignore[misc]
        self._drop_drafts()  # asynchronous scheduling has put placeholders there

    def _drop_drafts(self) -> None:
        for name in self._undrafted:
            request = self.requests.get(name)  # type: ignore[attr-defined]
            if request is not None and request.spec_token_ids:
                request.spec_token_ids = []

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self._undrafted.discard(request.request_id)
        return super()._free_request(request, *args, **kwargs)  # type: ignore[misc]
