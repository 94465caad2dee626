"""Requests without drafting, in a scheduler reduced to what the mix-in touches."""

from types import SimpleNamespace
from typing import Any

import pytest

from mmspec.serving.drafting import DraftChoice


class Scheduler:
    """vLLM's, as far as drafts go: waiting for each step, or putting placeholders for drafts to come."""

    def __init__(self, *, replicas: int = 1, ahead: bool = False) -> None:
        parallel = SimpleNamespace(data_parallel_size=replicas)
        self.vllm_config = SimpleNamespace(parallel_config=parallel)
        self.requests: dict[str, Any] = {}
        self.ahead = ahead

    def add_request(self, request: Any) -> None:
        self.requests[request.request_id] = request

    def update_draft_token_ids(self, drafts: dict[str, list[int]]) -> None:
        for name, tokens in drafts.items():
            self.requests[name].spec_token_ids = tokens

    def _update_after_schedule(self, output: Any) -> None:
        if self.ahead:
            for name in output.num_scheduled_tokens:
                self.requests[name].spec_token_ids = [-1] * output.num_spec_tokens_to_schedule

    def _free_request(self, request: Any, delay_free_blocks: bool = False) -> str:
        del self.requests[request.request_id]
        return "freed"


class Choosing(DraftChoice, Scheduler):
    pass


def request(name: str, **arguments: Any) -> Any:
    params = SimpleNamespace(extra_args=arguments or None)
    return SimpleNamespace(request_id=name, sampling_params=params, spec_token_ids=[])


def step(*names: str) -> Any:
    return SimpleNamespace(num_scheduled_tokens=dict.fromkeys(names, 1), num_spec_tokens_to_schedule=3)


def begin(**options: Any) -> Choosing:
    """A scheduler with `a`, which drafts, and `b`, which does not."""
    scheduler = Choosing(**options)
    scheduler.add_request(request("a"))
    scheduler.add_request(request("b", mmspec_draft=False))
    return scheduler


def drafts(scheduler: Scheduler) -> dict[str, list[int]]:
    return {name: one.spec_token_ids for name, one in scheduler.requests.items()}


def test_drafts_are_dropped_where_they_are_not_wanted() -> None:
    scheduler = begin()

    scheduler.update_draft_token_ids({"a": [1, 2], "b": [3, 4]})

    assert drafts(scheduler) == {"a": [1, 2], "b": []}


def test_placeholders_are_dropped_too() -> None:
    scheduler = begin(ahead=True)

    scheduler._update_after_schedule(step("a", "b"))

    assert drafts(scheduler) == {"a": [-1, -1, -1], "b": []}


@pytest.mark.parametrize(
    ("names", "replicas", "drafted"),
    [(("b",), 1, 0), (("a", "b"), 1, 3), (("a",), 1, 3), ((), 1, 3), (("b",), 2, 3)],
)
def test_nothing_is_drafted_where_nobody_wants_it(
    names: tuple[str, ...], replicas: int, drafted: int
) -> None:
    output = step(*names)

    begin(replicas=replicas)._update_after_schedule(output)

    assert output.num_spec_tokens_to_schedule == drafted


def test_a_name_may_come_again_with_another_choice() -> None:
    scheduler = begin()

    assert scheduler._free_request(scheduler.requests["b"], delay_free_blocks=False) == "freed"
    scheduler.add_request(request("b"))
    scheduler.update_draft_token_ids({"b": [3, 4]})

    assert drafts(scheduler)["b"] == [3, 4]
