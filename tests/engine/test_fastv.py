"""FastV in vLLM gives the tokens of a transformers reference, and keeps the same visual tokens, in float32."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from PIL.Image import Image

from tests.conftest import Checkpoints
from tests.engine.client import EngineWorker
from tests.engine.jobs import Job, Outcome, Request
from tests.engine.scenarios import chat, speculative_config
from tests.fastv_oracle import FastVOracle, text_behind, unrotated
from tests.long import LONG

pytestmark = [pytest.mark.engine, pytest.mark.slow]

TOKENS = 10
KEEPS = (1.0, 0.5, 0.25, 0.1)
Answers = tuple[list[list[int]], list[list[int]]]  # tokens, and what was kept of the visual ones

Worker = Callable[[str], EngineWorker]


def batch(family: str) -> list[Request]:
    """Every share in one batch, between text and prompts that are not pruned, with one picture and with two."""
    requests = [chat(family, "What is in the picture?")]
    for keep in KEEPS:
        requests += [
            pruned(family, "What is in the picture?", ("red_square",), keep),
            pruned(family, "Compare the first picture with the second.", ("stripes", "blue_disc"), keep),
        ]
    return [*requests, pruned(family, "How many apples?", ("blue_disc",), None)]


def pruned(family: str, question: str, images: tuple[str, ...], keep: float | None) -> Request:
    request = chat(family, question, images)
    return Request(request.text, request.images, keep)


@pytest.fixture(scope="module")
def references(tiny: Checkpoints) -> Callable[[str], FastVOracle]:
    return cache(lambda family: FastVOracle(tiny[family]))


@pytest.fixture(scope="module")
def expected(
    references: Callable[[str], FastVOracle], pictures: dict[str, Image]
) -> Callable[[str, int], Answers]:
    """What the reference answers to a family's batch with pruning from a layer on; made once."""

    @cache
    def answer(family: str, layer: int) -> Answers:
        reference = references(family)
        tokens, kept = [], []
        for request in batch(family):
            prompt = reference.prompt(request.text, [pictures[name] for name in request.images])
            keep = request.keep or 1.0
            tokens.append(reference.answer(prompt, TOKENS, layer=layer, keep=keep))
            kept.append(reference.kept if keep < 1 else [])
        return tokens, kept

    return answer


def run(
    worker: EngineWorker, tiny: Checkpoints, family: str, layer: int, method: str = "none", **engine: Any
) -> Outcome:
    return worker.run(
        Job(
            model=str(tiny[family]),
            requests=batch(family),
            speculative=speculative_config(method, tiny),
            engine={"additional_config": {"mmspec": {"fastv": {"layer": layer, "keep": 1.0}}}, **engine},
            max_tokens=TOKENS,
        )
    )


def compare(outcome: Outcome, expected: Answers) -> None:
    tokens, kept = expected
    assert [answer.kept for answer in outcome.answers] == kept
    assert outcome.tokens == tokens


@pytest.mark.parametrize("layer", [1, 2, 3, 4])
def test_tokens_are_those_of_the_reference(
    layer: int,
    tiny: Checkpoints,
    engine_workers: Worker,
    expected: Callable[[str, int], Answers],
) -> None:
    outcome = run(engine_workers("v1"), tiny, "qwen2_5_vl", layer)
    assert outcome.error is None
    compare(outcome, expected("qwen2_5_vl", layer))


@pytest.mark.parametrize(("family", "layer"), [("qwen3_vl", 3), ("qwen3_vl", 4), ("llava", 2)])
def test_other_families(
    family: str,
    layer: int,
    tiny: Checkpoints,
    engine_workers: Worker,
    expected: Callable[[str, int], Answers],
) -> None:
    compare(run(engine_workers("v1"), tiny, family, layer), expected(family, layer))


@pytest.mark.parametrize("method", ["ngram", "draft_model", "eagle3"])
def test_drafting_changes_no_token_of_pruned_answers(
    method: str, tiny: Checkpoints, engine_workers: Worker, expected: Callable[[str, int], Answers]
) -> None:
    outcome = run(engine_workers("v1"), tiny, "qwen2_5_vl", 2, method)

    compare(outcome, expected("qwen2_5_vl", 2))
    assert any(sum(answer.accepted) for answer in outcome.answers), "no draft was ever accepted"


@pytest.mark.v2
@pytest.mark.parametrize("method", ["none", "eagle3"])
def test_the_v2_runner(
    method: str, tiny: Checkpoints, engine_workers: Worker, expected: Callable[[str, int], Answers]
) -> None:
    outcome = run(engine_workers("v2"), tiny, "qwen2_5_vl", 2, method)

    assert outcome.runner == "v2"
    compare(outcome, expected("qwen2_5_vl", 2))


def long(*arguments: Any) -> Any:
    return pytest.param(
        *arguments,
        marks=[LONG, *([pytest.mark.v2] if "v2" in arguments else [])],
    )


@pytest.mark.parametrize(
    ("runner", "family", "layer", "method"),
    [
        ("v1", "qwen2_5_vl", 2, "none"),
        long("v1", "qwen2_5_vl", 2, "eagle3"),
        long("v1", "qwen3_vl", 3, "none"),
        long("v1", "llava", 2, "none"),
        long("v2", "qwen2_5_vl", 2, "eagle3"),
    ],
)
def test_compiled(
    runner: str,
    family: str,
    layer: int,
    method: str,
    tiny: Checkpoints,
    engine_workers: Worker,
    expected: Callable[[str, int], Answers],
) -> None:
    """The layers in front of K run eager in steps that prune, those behind it compiled apart, as all do in others.

    A head reads the states between layers in front of K and behind it.
    """
    outcome = run(engine_workers(runner), tiny, family, layer, method, enforce_eager=False)

    assert outcome.runner == runner
    assert outcome.compiled and outcome.tail_runs > 0
    compare(outcome, expected(family, layer))
    if method != "none":
        assert any(sum(answer.accepted) for answer in outcome.answers), "no draft was ever accepted"


@pytest.mark.parametrize("scores", ["instruction", "debiased"])
def test_another_criterion_and_shares_for_each_picture(
    scores: str,
    tiny: Checkpoints,
    engine_workers: Worker,
    references: Callable[[str], FastVOracle],
    pictures: dict[str, Image],
) -> None:
    fastv = {"layer": 2, "keep": 0.25, "scores": scores, "per_image": True}
    requests = [request for request in batch("qwen2_5_vl") if request.keep in (None, 0.5)]
    outcome = engine_workers("v1").run(
        Job(
            model=str(tiny["qwen2_5_vl"]),
            requests=requests,
            engine={"additional_config": {"mmspec": {"fastv": fastv}}},
            max_tokens=TOKENS,
        )
    )
    reference = references("qwen2_5_vl")
    attention = reference.model.model.language_model.layers[1].self_attn
    ranking = text_behind if scores == "instruction" else unrotated(attention)
    for request, answer in zip(requests, outcome.answers, strict=True):
        prompt = reference.prompt(request.text, [pictures[name] for name in request.images])
        keep = request.keep or 0.25
        asked = reference.answer(prompt, TOKENS, layer=2, keep=keep, ranking=ranking, per_image=True)
        assert answer.token_ids == asked
        assert answer.kept == (reference.kept if request.images else [])
