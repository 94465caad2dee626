"""Greedy tokens, drafting that changes none of them, and what is counted of it; on both model runners.

In one file because they look at the same runs of engines.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from PIL.Image import Image

from tests.engine.conftest import EngineRun
from tests.engine.jobs import Answer
from tests.engine.scenarios import (
    DRAFTED,
    LOOKUP,
    MAX_TOKENS,
    METHODS,
    REFUSED_BY_V2,
    missing_package,
    mixed_batch,
)
from tests.oracle import Oracle, Proposer, Speculation, prompt_lookup, speculate

pytestmark = [pytest.mark.engine, pytest.mark.slow]

Oracles = Callable[[str], Oracle]


def test_greedy_tokens_are_those_of_transformers(
    runner: str,
    family: str,
    engine_run: EngineRun,
    oracles: Oracles,
    pictures: dict[str, Image],
) -> None:
    """With drafting off, vLLM's are those of a plain transformers loop, in float32."""
    outcome = engine_run(runner, family, "none")
    oracle = oracles(family)
    expected: list[Any] = []
    for request in mixed_batch(family):
        prompt = oracle.prompt(request.text, [pictures[name] for name in request.images])
        expected.append((prompt["input_ids"][0].tolist(), oracle.greedy(prompt, MAX_TOKENS)))

    assert outcome.error is None
    assert outcome.runner == runner
    assert [answer.prompt_token_ids for answer in outcome.answers] == [ids for ids, _ in expected]
    assert outcome.tokens == [tokens for _, tokens in expected]


@pytest.mark.parametrize("method", METHODS)
def test_drafting_is_lossless(runner: str, family: str, method: str, engine_run: EngineRun) -> None:
    """Drafting changes no greedy token, for each method, with pictures and without."""
    if reason := missing_package(method):
        pytest.skip(reason)
    if runner == "v2" and family != "qwen2_5_vl" and method == "eagle3":
        pytest.skip("under the interpreter one family has every method, the others what differs by family")
    outcome = engine_run(runner, family, method)
    if runner == "v2" and method in REFUSED_BY_V2:
        assert REFUSED_BY_V2[method] in str(outcome.error)
        return

    assert outcome.tokens == engine_run(runner, family, "none").tokens
    assert outcome.runner == runner
    assert all(answer.drafted for answer in outcome.answers), "nothing was drafted, so nothing was tested"
    assert any(sum(answer.accepted) for answer in outcome.answers), "no draft was ever accepted"


def test_drafts_and_acceptance_of_prompt_lookup(
    runner: str, family: str, engine_run: EngineRun, oracles: Oracles, pictures: dict[str, Image]
) -> None:
    """What vLLM reports is what a plain speculative decoder counts.

    The runners differ: V1 takes the first of equal matches, V2 the last, and V2 always drafts in full length.
    """
    propose = prompt_lookup(count=DRAFTED, **LOOKUP, latest=runner == "v2", padded=runner == "v2")
    expected = _speculate_batch(family, oracles(family), propose, pictures)
    assert _counts(engine_run(runner, family, "ngram").answers) == _counts(expected)


def test_drafts_and_acceptance_of_a_draft_model(
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
