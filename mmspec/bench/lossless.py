"""Does drafting change greedy answers? Every method against drafting off, token for token."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mmspec.bench.prompts import Prompt
from mmspec.config import DraftConfig
from mmspec.errors import MmspecError
from mmspec.heads.evaluate import mean_acceptance_length


@dataclass(frozen=True)
class Mismatch:
    """One answer that drafting changed: the first token that differs, and both answers."""

    method: str
    prompt: str
    position: int
    baseline: str
    drafted: str


@dataclass(frozen=True)
class Lossless:
    """The verdict over `prompts` questions; the mean acceptance length of a method is over all of them."""

    identical: bool
    methods: list[str]
    prompts: int
    mismatches: list[Mismatch]
    mean_acceptance_length: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Answer:
    token_ids: list[int]
    text: str
    drafts: int
    accepted_tokens: int


def compare(
    model: str,
    prompts: Sequence[Prompt],
    drafts: Sequence[DraftConfig],
    *,
    max_tokens: int,
    report: Callable[[str], None] = lambda line: None,
    **vllm_kwargs: Any,
) -> Lossless:
    """Greedy answers in float32 with drafting off and with each of `drafts`, one engine after the other."""
    if not prompts or not drafts:
        raise MmspecError("nothing to compare: give at least one prompt and one drafting method")
    engine = {"model": model, "dtype": "float32", "max_num_seqs": 8, **vllm_kwargs}
    report("drafting off")
    baseline = _answers(engine, DraftConfig(method="none"), prompts, max_tokens)
    mismatches: list[Mismatch] = []
    lengths: dict[str, float] = {}
    for draft in drafts:
        report(f"drafting with {draft.method}")
        answers = _answers(engine, draft, prompts, max_tokens)
        mismatches += _differences(draft.method, prompts, baseline, answers)
        drafted = sum(answer.drafts for answer in answers)
        accepted = sum(answer.accepted_tokens for answer in answers)
        lengths[draft.method] = mean_acceptance_length(accepted, drafted)
    return Lossless(not mismatches, [draft.method for draft in drafts], len(prompts), mismatches, lengths)


def _answers(
    engine: dict[str, Any], draft: DraftConfig, prompts: Sequence[Prompt], max_tokens: int
) -> list[_Answer]:
    from vllm import SamplingParams

    from mmspec.llm import LLM

    llm = LLM(draft=draft, **engine)
    outputs = llm.chat(
        [prompt.messages() for prompt in prompts],
        SamplingParams(temperature=0, max_tokens=max_tokens),
        use_tqdm=False,
    )
    answers = [_answer(output) for output in outputs]
    llm.close()
    del llm
    gc.collect()
    return answers


def _answer(output: Any) -> _Answer:
    sequence, stats = output.outputs[0], output.mmspec
    return _Answer(list(sequence.token_ids), sequence.text, stats.drafts, stats.accepted_tokens)


def _differences(
    method: str, prompts: Sequence[Prompt], baseline: list[_Answer], answers: list[_Answer]
) -> list[Mismatch]:
    return [
        Mismatch(method, prompt.name, _first_difference(old.token_ids, new.token_ids), old.text, new.text)
        for prompt, old, new in zip(prompts, baseline, answers, strict=True)
        if old.token_ids != new.token_ids
    ]


def _first_difference(left: list[int], right: list[int]) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((position for position, (a, b) in pairs if a != b), min(len(left), len(right)))
