"""Which requests a step prunes, and which were pruned before: read from the scheduler's output alone.

Each worker keeps a book, and the scheduler keeps one for the statistics; all of them come to the same numbers, since
how many tokens stay depends on the prompt alone. Which ones stay is known on the device only.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mmspec.encoders.fastv.prompt import Prompt, prunable_prompt
from mmspec.encoders.fastv.settings import FastVSettings

if TYPE_CHECKING:
    from torch import Tensor

    from mmspec.encoders.fastv.rows import Rows


@dataclass
class Step:
    """One step in which at least one request is, or was, pruned.

    Attributes:
        scheduled: tokens of each request of the batch.
        pruned: the prompts that this step prunes, by request.
        dropped: tokens that each pruned request, of this step or of one before, lacks in the deeper layers.
        rows: the batch in its order, once the runner has settled it.
        slots: KV slots of the deeper layers by layer name, once their metadata is built.
    """

    scheduled: dict[str, int]
    pruned: dict[str, Prompt]
    dropped: dict[str, int]
    rows: "Rows | None" = None
    slots: "dict[str, Tensor]" = field(default_factory=dict)


class Book:
    """Follows the requests of an engine that have something to prune."""

    def __init__(self, settings: FastVSettings) -> None:
        self._per_image = settings.per_image
        self._prompts: dict[str, Prompt] = {}
        self._dropped: dict[str, int] = {}
        self.cut: set[str] = set()  # requests that go unpruned because their prompts did not fit one step

    def begin(self, output: Any) -> Step | None:
        """Takes in what a step schedules (vLLM's `SchedulerOutput`); None when no pruned request is about."""
        for name in output.finished_req_ids:
            self._forget(name)
        pruned = {}
        for name in self._starting(output):
            prompt = self._prompts[name]
            self._dropped.pop(name, None)
            if output.num_scheduled_tokens.get(name, 0) < prompt.length:
                self.cut.add(name)
            else:
                self.cut.discard(name)
                pruned[name] = prompt
                self._dropped[name] = prompt.dropped
        if not self._dropped:
            return None
        return Step(output.num_scheduled_tokens, pruned, self._dropped)

    def dropped(self, name: str) -> int:
        """How many visual tokens of a live request go no further than layer K."""
        return self._dropped.get(name, 0)

    def _starting(self, output: Any) -> list[str]:
        """Requests with something to prune whose prompts begin in this step, again after preemption too."""
        for request in output.scheduled_new_reqs:
            self._forget(request.req_id)
            # With KV from elsewhere there is nothing to decide any more; the user's side rules that out.
            if request.num_computed_tokens == 0 and (
                prompt := prunable_prompt(request, per_image=self._per_image)
            ):
                self._prompts[request.req_id] = prompt
        if not self._prompts:
            return []
        new = [request.req_id for request in output.scheduled_new_reqs if request.req_id in self._prompts]
        cached = output.scheduled_cached_reqs
        computed = zip(cached.req_ids, cached.num_computed_tokens, strict=True)
        return new + [name for name, tokens in computed if tokens == 0 and name in self._prompts]

    def _forget(self, name: str) -> None:
        self._prompts.pop(name, None)
        self._dropped.pop(name, None)
        self.cut.discard(name)
