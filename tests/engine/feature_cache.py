"""An engine with the feature cache in this process, and questions about pictures of a known number of tokens."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from tests.engine.encoder_runs import count_encoded
from tests.oracle import Oracle

LARGEST = 64  # visual tokens of a picture of ours, and all that vLLM's own cache of these engines holds
QUESTION = "<|im_start|>user\n{}What is in the picture?<|im_end|>\n<|im_start|>assistant\n"
PLACE = "<|vision_start|><|image_pad|><|vision_end|>"


def large_picture(number: int) -> Image.Image:
    """One that fills vLLM's own cache of these engines, so that the next one drives it out."""
    picture = Image.new("RGB", (224, 224), "white")
    left = 8 * (number % 20)
    ImageDraw.Draw(picture).rectangle((left, 20, left + 60, 150 + number), fill=("red", "blue")[number % 2])
    return picture


def answer_of(oracle: Oracle, *pictures: Image.Image, tokens: int = 8) -> list[int]:
    """What a plain transformers loop answers to `prompt_of(*pictures)`."""
    prompt = oracle.prompt(QUESTION.format(PLACE * len(pictures)), list(pictures))
    return list(oracle.greedy(prompt, tokens))


def prompt_of(
    *pictures: Image.Image, ids: list[str] | None = None, salt: str | None = None
) -> dict[str, Any]:
    prompt: dict[str, Any] = {"prompt": QUESTION.format(PLACE * len(pictures))}
    prompt["multi_modal_data"] = {"image": list(pictures)}
    if ids is not None:
        prompt["multi_modal_uuids"] = {"image": ids}
    if salt is not None:
        prompt["cache_salt"] = salt
    return prompt


@dataclass
class CachingEngine:
    """A running engine.

    Attributes:
        llm: the `vllm.LLM`.
        model: its checkpoint's folder.
        runs: of the vision tower, the number of pictures in each.
    """

    llm: Any
    model: str
    runs: list[int]
    max_tokens: int = 8
    keep: float | None = None  # `fastv_keep` of what is asked

    def ask(self, *prompts: dict[str, Any]) -> list[list[int]]:
        """Answers to prompts that come at once, as token ids."""
        outputs = self.llm.generate(list(prompts), self.sampling, use_tqdm=False)
        self.reports = [
            (output.ec_transfer_params or {}).get("mmspec", {}).get("encoder_cache") for output in outputs
        ]
        return [list(output.outputs[0].token_ids) for output in outputs]

    @property
    def sampling(self) -> Any:
        from vllm import SamplingParams

        arguments = None if self.keep is None else {"fastv_keep": self.keep}
        return SamplingParams(
            temperature=0, max_tokens=self.max_tokens, ignore_eos=True, extra_args=arguments
        )

    def encoded(self) -> int:
        """Pictures that went through the vision tower since the last call."""
        count = sum(self.runs)
        self.runs.clear()
        return count

    def settle(self) -> None:
        """Waits until everything that was encoded is stored."""
        connector = self.core.scheduler.ec_connector
        from vllm.distributed.ec_transfer import get_ec_transfer

        worker = get_ec_transfer()
        assert worker._worker._saver.flush(30)
        assert connector._store.flush(30)

    @property
    def core(self) -> Any:
        return self.llm.llm_engine.engine_core.engine_core


Starting = Callable[..., AbstractContextManager[Any]]


@contextmanager
def caching_engine(
    start: Starting, model: Path, options: dict[str, Any], **arguments: Any
) -> Iterator[CachingEngine]:
    """An engine whose own cache holds one large picture."""
    engine: dict[str, Any] = {
        "additional_config": {"mmspec": {"encoder_cache": options}},
        "scheduler_cls": "mmspec.scheduler.build_scheduler",
        "enable_prefix_caching": False,
        "max_num_batched_tokens": LARGEST,
        "limit_mm_per_prompt": {"image": 2, "video": 0},  # a video would make vLLM's own cache larger
        "max_num_seqs": 4,
    }
    with start(str(model), **(engine | arguments)) as llm:
        yield CachingEngine(llm, str(model), count_encoded(llm))
