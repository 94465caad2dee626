"""What vLLM reports about drafts is what a plain speculative decoder counts."""

from collections.abc import Callable

import pytest
import torch
from PIL.Image import Image

from tests.engine.conftest import EngineRun
from tests.engine.jobs import Answer
from tests.engine.scenarios import DRAFTED, LOOKUP, MAX_TOKENS, mixed_batch
from tests.oracle import Oracle, Proposer, Speculation, prompt_lookup, speculate

pytestmark = [pytest.mark.engine, pytest.mark.slow]

Oracles = Callable[[str], Oracle]


def test_prompt_lookup(
    runner: str, family: str, engine_run: EngineRun, oracles: Oracles, pictures: dict[str, Image]
) -> None:
    """The runners differ: V1 takes the first of equal matches, V2 the last, and V2 always drafts in full length."""
    propose = prompt_lookup(count=DRAFTED, **LOOKUP, latest=runner == "v2", padded=runner == "v2")
    expected = _speculate_batch(family, oracles(family), propose, pictures)
    assert _counts(engine_run(runner, family, "ngram").answers) == _counts(expected)


def test_draft_model(
    runner: str, family: str, engine_run: EngineRun, oracles: Oracles, pictures: dict[str, Image]
) -> None:
    """The draft sees plain text at plain indices, placeholders included, as this oracle does."""
    llama = oracles("llama")

    def propose(tokens: list[int]) -> list[int]:
        return llama.greedy({"input_ids": torch.tensor([tokens])}, DRAFTED)

    expected = _speculate_batch(family, oracles(family), propose, pictures)
    assert _counts(engine_run(runner, family, "draft_model").answers) == _counts(expected)


def _speculate_batch(
    family: str, oracle: Oracle, propose: Proposer, pictures: dict[str, Image]
) -> list[Speculation]:
    prompts = (
        oracle.prompt(request.text, [pictures[name] for name in request.images])
        for request in mixed_batch(family)
    )
    return [speculate(oracle, prompt, propose, MAX_TOKENS) for prompt in prompts]


def _counts(runs: list[Answer] | list[Speculation]) -> list[tuple[list[int], list[int], list[int]]]:
    return [
        (run.token_ids, run.drafted, run.accepted)
        if isinstance(run, Answer)
        else (run.tokens, run.proposed, run.accepted)
        for run in runs
    ]
