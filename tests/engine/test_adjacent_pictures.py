"""With EAGLE and an encoder cache for one picture, a prompt with two pictures side by side is answered."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from PIL.Image import Image, new

from tests.conftest import Checkpoints
from tests.oracle import Oracle

pytestmark = [pytest.mark.engine, pytest.mark.slow]

PICTURE = 16  # tokens
STEPS = 40  # more than an answer takes
ANSWER = 8


def test_a_prompt_passes_from_one_picture_to_the_next(
    tiny: Checkpoints,
    oracles: Callable[[str], Oracle],
    pictures: dict[str, Image],
    vllm_engine: Callable[..., AbstractContextManager[Any]],
) -> None:
    # Other pictures each time, so that neither the prefix nor the encoder cache has any of them.
    asked = [("", ("red_square", "blue_disc")), ("\n", ("stripes", "white"))]
    pictures = pictures | {"white": new("RGB", (98, 98), "white")}
    oracle = oracles("llava")
    with vllm_engine(
        str(tiny["llava"]),
        speculative_config={"method": "eagle3", "model": str(tiny["eagle3"]), "num_speculative_tokens": 2},
        additional_config={"mmspec": {}},
        max_num_batched_tokens=PICTURE + PICTURE // 2,  # the encoder cache holds as many embeddings
    ) as llm:
        for between, names in asked:
            text = f"USER: <image>{between}<image>\nCompare the first picture with the second. ASSISTANT:"
            images = [pictures[name] for name in names]
            answer = steps_until_finished(llm, {"prompt": text, "multi_modal_data": {"image": images}})
            assert answer == oracle.greedy(oracle.prompt(text, images), ANSWER), text


def steps_until_finished(llm: Any, prompt: dict[str, Any]) -> list[int] | None:
    """Steps the engine by hand, since a request that hangs would hang `generate`; None when it does."""
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=ANSWER, ignore_eos=True)
    llm.llm_engine.add_request("0", prompt, sampling)
    for _ in range(STEPS):
        for output in llm.llm_engine.step():
            if output.finished:
                return list(output.outputs[0].token_ids)
    return None
