"""A request preempted in the step that was to encode its picture: it, and who shares the picture, are answered."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from PIL.Image import Image

from tests.conftest import Checkpoints
from tests.engine.encoder_runs import count_encoded
from tests.oracle import Oracle

pytestmark = [pytest.mark.engine, pytest.mark.slow]

ANSWER = 12
CHUNK = 20
QUESTION = "<image>\nWhat is in the picture? ASSISTANT:"
# In the order in which they start, a step apart. Both pictures are reached in the fifth step: the first request has
# the engine to itself in its first step and reads three chunks at once.
TEXTS = {
    "preempted": "USER: " + "apples, " * 40 + QUESTION,
    "twin": "USER: " + "apples, " * 20 + QUESTION,
    "urgent": "USER: one ASSISTANT:",
}


@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
def test_a_preempted_requests_picture_is_encoded_when_needed(
    shared: bool,
    tiny: Checkpoints,
    oracles: Callable[[str], Oracle],
    pictures: dict[str, Image],
    vllm_engine: Callable[..., AbstractContextManager[Any]],
) -> None:
    oracle, picture = oracles("llava"), pictures["stripes"]
    texts = {name: text for name, text in TEXTS.items() if shared or name != "twin"}
    with vllm_engine(
        str(tiny["llava"]),
        speculative_config={"method": "eagle3", "model": str(tiny["eagle3"]), "num_speculative_tokens": 2},
        additional_config={"mmspec": {}},
        scheduling_policy="priority",
        long_prefill_token_threshold=CHUNK,
        max_num_batched_tokens=3 * CHUNK,
        enable_prefix_caching=False,
    ) as llm:
        scheduler = llm.llm_engine.engine_core.engine_core.scheduler
        preempted = preempt_once(scheduler)
        encoded = count_encoded(llm)
        answers = answer_all(llm, texts, picture)

    assert preempted == ["preempted"]
    assert sum(encoded) == 1
    for name, text in texts.items():
        images = [picture] if "<image>" in text else []
        assert answers[name] == oracle.greedy(oracle.prompt(text, images), ANSWER)


def preempt_once(scheduler: Any) -> list[str]:
    """Makes the KV cache seem full to the urgent request in the step that enters the picture; names who gives way."""
    entered: list[int] = []  # steps
    preempted: list[str] = []
    allocate, enter, preempt = (
        scheduler.kv_cache_manager.allocate_slots,
        scheduler._allocate_encoder_inputs,
        scheduler._preempt_request,
    )

    def allocate_slots(request: Any, *arguments: Any, **keywords: Any) -> Any:
        full = request.request_id.startswith("urgent") and entered == [scheduler.current_step]
        return None if full and not preempted else allocate(request, *arguments, **keywords)

    def allocate_encoder_inputs(request: Any, *arguments: Any) -> None:
        enter(request, *arguments)
        entered.append(scheduler.current_step)

    def preempt_request(request: Any, *arguments: Any, **keywords: Any) -> None:
        preempt(request, *arguments, **keywords)
        preempted.append(request.request_id.rsplit("-", 1)[0])

    scheduler.kv_cache_manager.allocate_slots = allocate_slots
    scheduler._allocate_encoder_inputs = allocate_encoder_inputs
    scheduler._preempt_request = preempt_request
    return preempted


def answer_all(llm: Any, texts: dict[str, str], picture: Image) -> dict[str, list[int]]:
    """The later a request starts, the more urgent it is."""
    from vllm import SamplingParams

    engine = llm.llm_engine
    sampling = SamplingParams(temperature=0, max_tokens=ANSWER, ignore_eos=True)
    answers: dict[str, list[int]] = {}
    waiting = list(texts)
    while waiting or engine.has_unfinished_requests():
        if waiting:
            name = waiting.pop(0)
            prompt: dict[str, Any] = {"prompt": texts[name]}
            if "<image>" in texts[name]:
                prompt["multi_modal_data"] = {"image": [picture]}
            engine.add_request(name, prompt, sampling, priority=len(waiting))
        for output in engine.step():
            if output.finished:
                answers[output.request_id] = list(output.outputs[0].token_ids)
    return answers
