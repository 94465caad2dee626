"""FastV beside prefix caching, preemption, chunks, several answers to one prompt, and mistakes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from PIL.Image import Image

from mmspec.encoders.fastv.recording import Kept, record_kept
from mmspec.encoders.fastv.unpruned import NAME, TOO_LONG
from mmspec.stats import request_stats
from tests.conftest import Checkpoints
from tests.engine.scenarios import chat
from tests.fastv_oracle import FastVOracle

pytestmark = [pytest.mark.engine, pytest.mark.slow]

LAYER, KEEP, TOKENS = 2, 0.5, 8
QUESTIONS = ("What is in the picture?", "How many apples: one, two, three?")
LONG = "Look at this: " + "apples, " * 12  # ahead of the picture, so that its blocks could be shared
FASTV = {"mmspec": {"fastv": {"layer": LAYER, "keep": KEEP}}}

Engine = Callable[..., AbstractContextManager[Any]]


@pytest.fixture(scope="module")
def reference(tiny: Checkpoints) -> FastVOracle:
    return FastVOracle(tiny["qwen2_5_vl"])


@pytest.fixture(scope="module")
def module_engine() -> Iterator[Engine]:
    """`vllm_engine` for a whole module."""
    from tests.engine.in_process import running_engine
    from tests.engine.runners import in_process_environment

    with pytest.MonkeyPatch.context() as patch:
        for name, value in in_process_environment().items():
            patch.setenv(name, value)
        import torch

        torch.set_num_threads(1)
        yield running_engine


def ask(question: str, *, before: str = "") -> str:
    text = chat("qwen2_5_vl", question, ("red_square",)).text
    return text.replace("<|vision_start|>", before + "<|vision_start|>", 1)


def sampling(keep: float | None = None, tokens: int = TOKENS, **options: Any) -> Any:
    from vllm import SamplingParams

    arguments = None if keep is None else {"fastv_keep": keep}
    return SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, extra_args=arguments, **options)


class Asking:
    """An engine and the reference, asked the same."""

    def __init__(self, llm: Any, reference: FastVOracle, picture: Image) -> None:
        self.llm, self._reference, self._picture = llm, reference, picture
        self.kept: dict[str, Kept] = record_kept(llm)

    def engine(self, texts: list[str], params: Any) -> list[Any]:
        prompts = [{"prompt": text, "multi_modal_data": {"image": [self._picture]}} for text in texts]
        outputs: list[Any] = self.llm.generate(prompts, params, use_tqdm=False)
        return outputs

    def tokens(self, text: str, keep: float | None = None, tokens: int = TOKENS) -> list[int]:
        (output,) = self.engine([text], sampling(keep, tokens))
        return list(output.outputs[0].token_ids)

    def expected(self, text: str, keep: float = KEEP, tokens: int = TOKENS) -> list[int]:
        prompt = self._reference.prompt(text, [self._picture])
        return self._reference.answer(prompt, tokens, layer=LAYER, keep=keep)


@pytest.fixture(scope="module")
def asking(
    module_engine: Engine, tiny: Checkpoints, reference: FastVOracle, pictures: dict[str, Image]
) -> Iterator[Asking]:
    """An engine with prefix caching and small blocks, so that prompts fill some."""
    options = {"enable_prefix_caching": True, "block_size": 32, "additional_config": FASTV}
    with module_engine(str(tiny["qwen2_5_vl"]), **options) as llm:
        yield Asking(llm, reference, pictures["red_square"])


def test_two_questions_about_one_picture_are_answered_as_by_a_fresh_engine(asking: Asking) -> None:
    first, second = (ask(question, before=LONG) for question in QUESTIONS)
    expected = [asking.expected(first), asking.expected(second), asking.expected(first)]

    assert [asking.tokens(first), asking.tokens(second), asking.tokens(first)] == expected


def test_pruned_and_unpruned_requests_share_no_blocks_and_unpruned_ones_do(asking: Asking) -> None:
    text = ask("Compare.", before=LONG + "more, " * 20)
    shares = [0.25, 1.0, 0.25, 1.0, 0.5]

    outputs = [asking.engine([text], sampling(keep))[0] for keep in shares]

    answers = [list(output.outputs[0].token_ids) for output in outputs]
    assert answers == [asking.expected(text, keep) for keep in shares]
    cached = [output.num_cached_tokens for output in outputs]
    assert [cached[i] for i in (0, 1, 2, 4)] == [0, 0, 0, 0]
    assert cached[3] >= 64


def test_several_answers_to_one_prompt(asking: Asking) -> None:
    several = sampling(0.25)
    several.n, several.temperature, several.top_k = (
        3,
        1.0,
        1,
    )  # greedy in effect; vLLM refuses n > 1 with greedy
    (output,) = asking.engine([ask(QUESTIONS[0])], several)

    assert [list(one.token_ids) for one in output.outputs] == [asking.expected(ask(QUESTIONS[0]), 0.25)] * 3


def test_what_was_seen_and_kept_is_reported(asking: Asking) -> None:
    shares = [None, 0.25, 1.0]
    outputs = asking.engine([ask(QUESTIONS[0])] * 3, [sampling(keep) for keep in shares])

    visual = [request_stats(output).visual_tokens for output in outputs]
    assert [(one.seen, one.kept) for one in visual] == [(12, 6), (12, 3), (12, 12)]
    assert sum(asking.kept[outputs[1].request_id].pictures[0]) == 3


@pytest.mark.parametrize("keep", [0, -1, 1.5, "half", float("nan")])
def test_a_share_that_means_nothing_is_refused_and_the_engine_lives_on(keep: Any, asking: Asking) -> None:
    from vllm.exceptions import VLLMValidationError

    with pytest.raises(VLLMValidationError, match="give a number above 0 and up to 1"):
        asking.tokens(ask(QUESTIONS[0]), keep)

    assert asking.tokens(ask(QUESTIONS[0])) == asking.expected(ask(QUESTIONS[0]))


def test_preempted_requests_are_pruned_again(
    vllm_engine: Engine, tiny: Checkpoints, reference: FastVOracle, pictures: dict[str, Image]
) -> None:
    options = {
        "block_size": 32,
        "num_gpu_blocks_override": 9,
        "max_model_len": 256,
        "additional_config": FASTV,
    }
    long = 60
    with vllm_engine(str(tiny["qwen2_5_vl"]), disable_log_stats=False, **options) as llm:
        asking = Asking(llm, reference, pictures["red_square"])
        texts = [ask(question) for question in (*QUESTIONS, "Compare.")]
        outputs = asking.engine(texts, sampling(tokens=long))

    assert sum(output.metrics.num_preemptions for output in outputs) > 0
    for text, output in zip(texts, outputs, strict=True):
        assert list(output.outputs[0].token_ids) == asking.expected(text, tokens=long)


def test_a_prompt_too_long_for_one_step_goes_unpruned_and_is_counted(
    vllm_engine: Engine,
    tiny: Checkpoints,
    reference: FastVOracle,
    pictures: dict[str, Image],
) -> None:
    """The short ones take turns, rather than being cut because they do not fit one step together."""
    long, short = ask(QUESTIONS[0], before=LONG * 3), [ask(question) for question in QUESTIONS]
    model = str(tiny["qwen2_5_vl"])
    before = counted(model)
    with vllm_engine(model, max_num_batched_tokens=64, additional_config=FASTV) as llm:
        asking = Asking(llm, reference, pictures["red_square"])
        outputs = asking.engine([*short, long], sampling())

    answers = [list(output.outputs[0].token_ids) for output in outputs]
    assert answers == [*map(asking.expected, short), asking.expected(long, 1.0)]
    kept = [request_stats(output).visual_tokens.kept for output in outputs]
    assert kept == [6, 6, 12]
    assert counted(model) == before + 1


def counted(model: str) -> float:
    """What `/metrics` says."""
    from prometheus_client import REGISTRY

    labels = {"model_name": model, "reason": TOO_LONG}
    return REGISTRY.get_sample_value(f"{NAME}_total", labels) or 0.0
