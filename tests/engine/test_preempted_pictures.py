"""A request preempted in the step that was to encode its picture: it, and who shares the picture, are answered."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

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
CASES = ("alone", "shared")
SPARED = {"alone": 0, "shared": 1}
"""Pictures encoded where the cache has them: a twin of the preempted request is handed a picture, not features."""

Engine = Callable[..., AbstractContextManager[Any]]


def test_a_preempted_requests_picture_is_encoded_when_needed(
    tiny: Checkpoints, oracles: Callable[[str], Oracle], pictures: dict[str, Image], vllm_engine: Engine
) -> None:
    with vllm_engine(**engine(tiny, {})) as llm:
        core = llm.llm_engine.engine_core.engine_core
        encoded = count_encoded(llm)
        for case in CASES:
            forget_pictures(core)
            preempt(llm, case, oracles("llava"), pictures["stripes"])
            assert encoded == [1]
            encoded.clear()


def test_a_preempted_requests_picture_is_loaded_when_needed(
    tiny: Checkpoints,
    oracles: Callable[[str], Oracle],
    pictures: dict[str, Image],
    vllm_engine: Engine,
    tmp_path: Path,
) -> None:
    """The same with the feature cache: as long as it lacks the picture, and once it has it."""
    with vllm_engine(**engine(tiny, {"encoder_cache": {"directory": str(tmp_path)}})) as llm:
        core = llm.llm_engine.engine_core.engine_core
        encoded = count_encoded(llm)
        search_at_once(core.scheduler)
        for known in (False, True):
            for case in CASES:
                forget_pictures(core)
                if not known:
                    core.scheduler.ec_connector._store.purge()
                preempt(llm, case, oracles("llava"), pictures["stripes"])

                assert sum(encoded) == (SPARED[case] if known else 1), (known, case)
                encoded.clear()
                assert not list((tmp_path / "held").iterdir()), "what was held for a load was let go of"
                assert len(list((tmp_path / "entries").iterdir())) == 1


def engine(tiny: Checkpoints, mmspec: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": str(tiny["llava"]),
        "speculative_config": {"method": "eagle3", "model": str(tiny["eagle3"]), "num_speculative_tokens": 2},
        "additional_config": {"mmspec": mmspec},
        "scheduling_policy": "priority",
        "long_prefill_token_threshold": CHUNK,
        "max_num_batched_tokens": 3 * CHUNK,
        "enable_prefix_caching": False,
    }


def preempt(llm: Any, case: str, oracle: Oracle, picture: Image) -> None:
    """Asks, preempts, and compares the answers with the oracle's."""
    texts = {name: text for name, text in TEXTS.items() if case == "shared" or name != "twin"}
    with preempting_once(llm.llm_engine.engine_core.engine_core.scheduler) as preempted:
        answers = answer_all(llm, texts, picture)

    assert preempted == ["preempted"]
    for name, text in texts.items():
        images = [picture] if "<image>" in text else []
        assert answers[name] == oracle.greedy(oracle.prompt(text, images), ANSWER)


def search_at_once(scheduler: Any) -> None:
    """A request that waits for a search would come to its picture in another step than the test means."""
    scheduler.ec_connector._scheduler._lookups._threads = AtOnce()


class AtOnce:
    """An executor without threads."""

    def submit(self, work: Callable[[], Any]) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(work())
        return done

    def shutdown(self, **_: Any) -> None: ...


def forget_pictures(core: Any) -> None:
    """Empties vLLM's own cache, without the doubt about the weights that a user's call would raise."""
    if (connector := core.scheduler.ec_connector) is not None:
        from vllm.distributed.ec_transfer import get_ec_transfer

        assert get_ec_transfer()._worker._saver.flush(30) and connector._store.flush(30)
        connector.device_cleared()
    core.scheduler.reset_encoder_cache()
    core.model_executor.reset_encoder_cache()


@contextmanager
def preempting_once(scheduler: Any) -> Iterator[list[str]]:
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

    with (
        patch.object(scheduler.kv_cache_manager, "allocate_slots", allocate_slots),
        patch.object(scheduler, "_allocate_encoder_inputs", allocate_encoder_inputs),
        patch.object(scheduler, "_preempt_request", preempt_request),
    ):
        yield preempted


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
