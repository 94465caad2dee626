"""The `vllm_engine` fixture: an engine in this process leaves room for the next one."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from PIL.Image import Image

from tests.conftest import Checkpoints
from tests.engine.scenarios import chat
from tests.oracle import Oracle

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def test_engines_follow_each_other_in_one_process(
    tiny: Checkpoints,
    oracles: Callable[[str], Oracle],
    pictures: dict[str, Image],
    vllm_engine: Callable[..., AbstractContextManager[Any]],
) -> None:
    from vllm import SamplingParams

    oracle = oracles("qwen2_5_vl")
    request = chat("qwen2_5_vl", "Count the apples.", ("red_square",))
    picture = pictures["red_square"]
    expected = oracle.greedy(oracle.prompt(request.text, [picture]), 8)
    prompt = {"prompt": request.text, "multi_modal_data": {"image": [picture]}}
    sampling = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    for arguments in ({"speculative_config": {"method": "ngram", "num_speculative_tokens": 2}}, {}):
        with vllm_engine(str(tiny["qwen2_5_vl"]), **arguments) as llm:
            output = llm.generate(prompt, sampling, use_tqdm=False)[0]
        assert list(output.outputs[0].token_ids) == expected
