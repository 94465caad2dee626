"""A request that does without drafting: the same tokens, no drafts, and nothing spoilt for those who draft."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.conftest import Checkpoints
from tests.engine.client import EngineWorker
from tests.engine.conftest import EngineRun
from tests.engine.jobs import Answer, Job
from tests.engine.scenarios import MAX_TOKENS, mixed_batch, speculative_config

pytestmark = [pytest.mark.engine, pytest.mark.slow]

FAMILY, METHOD = "qwen2_5_vl", "eagle3"  # which has a cache to spoil; tests/serve has prompt lookup


def test_drafts_are_left_out_where_they_are_not_wanted(
    runner: str,
    tiny: Checkpoints,
    engine_run: EngineRun,
    engine_workers: Callable[[str], EngineWorker],
) -> None:
    """Three times the mixed batch in one engine: none of it drafts, every other does, all of it does."""
    batch = [replace(request, tokens=True) for request in mixed_batch(FAMILY)]
    undrafted = [replace(request, draft=False) for request in batch]
    mixed = [undrafted[i] if i % 2 else batch[i] for i in range(len(batch))]
    job = Job(
        model=str(tiny[FAMILY]),
        requests=[*undrafted, *mixed, *batch],
        speculative=speculative_config(METHOD, tiny),
        engine={
            "additional_config": {"mmspec": {}},
            "scheduler_cls": "mmspec.scheduler.build_scheduler",
            "block_size": 32,  # so that the prompts' blocks are found again
        },
        max_tokens=MAX_TOKENS,
        batches=(len(batch),) * 3,
    )

    outcome = engine_workers(runner).run(job)

    expected = engine_run(runner, FAMILY, METHOD)
    assert outcome.tokens == expected.tokens * 3
    parts = [outcome.answers[i : i + len(batch)] for i in range(0, 3 * len(batch), len(batch))]
    assert not any(sum(answer.drafted) for answer in [*parts[0], *parts[1][1::2]])
    # What the head has in its cache of prompts that were first answered without drafting is what it needs.
    assert _accepted(parts[2]) == _accepted(expected.answers)
    assert all(_adds_up(answer) for answer in outcome.answers)


def _accepted(answers: list[Answer]) -> list[list[int]]:
    return [answer.accepted for answer in answers]


def _adds_up(answer: Answer) -> bool:
    """The scheduler's account of the tokens against vLLM's own of the drafts."""
    assert answer.steps is not None
    drafts = [(len(drafted), accepted) for accepted, _, *drafted in answer.steps if drafted]
    tokens = sum(new for _, new, *_ in answer.steps)
    return tokens == len(answer.token_ids) and drafts == list(
        zip(answer.drafted, answer.accepted, strict=True)
    )
