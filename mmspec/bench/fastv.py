"""What pruning costs and brings: equality with a reference, answers by criterion and share, drafting on top."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mmspec.bench import speed
from mmspec.bench.prompts import Prompt, answerer
from mmspec.config import DraftConfig, FastVConfig
from mmspec.encoders.fastv.budget import KEEP

Report = Callable[[str], None]
_REFERENCE_TOKENS = 12  # of each answer that the reference, which keeps no cache, is asked for


@dataclass(frozen=True)
class Setting:
    """What is measured: the model's folder, K, the shares, and further engine arguments."""

    model: str
    layer: int
    keeps: tuple[float, ...]
    engine: dict[str, Any]


def identical_to_reference(setting: Setting, prompts: Sequence[Prompt], report: Report) -> bool:
    """Whether the engine's first tokens are those of FastV in transformers, for every prompt and share, in float32."""
    report("asking the engine")
    with_engine = _answers(setting, DraftConfig(method="none"), prompts, _REFERENCE_TOKENS)
    reference = _Transformers(setting)
    for number, prompt in enumerate(prompts):
        report(f"asking the reference, prompt {number + 1} of {len(prompts)}")
        for keep in setting.keeps:
            tokens = with_engine[keep][number].outputs[0].token_ids
            if list(tokens) != reference.answer(prompt, keep, len(tokens)):
                return False
    return True


def answers_by_share(
    setting: Setting, criteria: Sequence[str], scenes: int, report: Report
) -> dict[str, Any]:
    """`accuracy` and `recall` of the pocket model on held-out scenes, by criterion and share."""
    from mmspec.encoders.pocket.evaluate import evaluate

    accuracy: dict[str, dict[str, float]] = {}
    recall: dict[str, dict[str, float]] = {}
    unpruned = None  # the same for every criterion, which ranks nothing then
    for name in criteria:
        llm = _engine(setting, DraftConfig(method="none"), name)
        for keep in setting.keeps:
            scores = unpruned if keep == 1.0 else None
            if scores is None:
                report(f"{name}, keeping {keep}")
                scores = evaluate(answerer(llm, extra_args={KEEP: keep}), scenes, None, shuffled=False)
            unpruned = scores if keep == 1.0 else unpruned
            accuracy.setdefault(name, {})[str(keep)] = scores.accuracy
            recall.setdefault(name, {})[str(keep)] = scores.object_recall
        llm.close()
    return {"accuracy": accuracy, "recall": recall}


def drafting(
    setting: Setting, head: str, tokens: int, prompts: Sequence[Prompt], report: Report
) -> dict[str, Any]:
    """By share, with `tokens` drafted a step: whether drafting changes a token, how much it accepts, and its speed-up.

    All of it is against the same pruning without drafting.
    """
    draft = DraftConfig(method="eagle3", model=head, num_speculative_tokens=tokens)
    report("drafting off")
    plain = _answers(setting, DraftConfig(method="none"), prompts, 64)
    report(f"drafting with {draft.method}")
    drafted = _answers(setting, draft, prompts, 64)
    speeds = speed.measure(
        setting.model,
        draft,
        {str(keep): speed.Case(prompts, extra_args={KEEP: keep}) for keep in setting.keeps},
        ks=[tokens],
        report=report,
        fastv=_config(setting, "last"),
        dtype="float32",
        **setting.engine,
    )
    return {
        str(keep): _drafted(plain[keep], drafted[keep])
        | {"tpot_speedup": speeds[str(keep)].tpot_speedup, "spread": speeds[str(keep)].spread}
        for keep in setting.keeps
    }


def _drafted(plain: list[Any], drafted: list[Any]) -> dict[str, Any]:
    from mmspec.heads.evaluate import mean_acceptance_length

    stats = [output.mmspec for output in drafted]
    tokens = [[list(output.outputs[0].token_ids) for output in outputs] for outputs in (plain, drafted)]
    return {
        "identical": tokens[0] == tokens[1],
        "mean_acceptance_length": mean_acceptance_length(
            sum(one.accepted_tokens for one in stats), sum(one.drafts for one in stats)
        ),
    }


def _answers(
    setting: Setting, draft: DraftConfig, prompts: Sequence[Prompt], max_tokens: int
) -> dict[float, list[Any]]:
    """Outputs by share, of one engine."""
    llm = _engine(setting, draft, "last")
    messages = [prompt.messages() for prompt in prompts]
    found = {keep: llm.chat(messages, _sampling(keep, max_tokens), use_tqdm=False) for keep in setting.keeps}
    llm.close()
    return found


def _engine(setting: Setting, draft: DraftConfig, scores: str) -> Any:
    from mmspec.llm import LLM

    engine = {"dtype": "float32", "max_num_seqs": 16, **setting.engine}
    return LLM(setting.model, draft=draft, fastv=_config(setting, scores), **engine)


def _config(setting: Setting, scores: str) -> FastVConfig:
    """Nothing is pruned but for requests that ask for it."""
    return FastVConfig(layer=setting.layer, keep=1.0, scores=scores)


def _sampling(keep: float, max_tokens: int) -> Any:
    from vllm import SamplingParams

    return SamplingParams(temperature=0, max_tokens=max_tokens, extra_args={KEEP: keep})


class _Transformers:
    """Greedy answers of FastV in transformers, in float32."""

    def __init__(self, setting: Setting) -> None:
        import torch
        from transformers import AutoModelForImageTextToText, AutoProcessor

        self._layer = setting.layer
        self._processor: Any = AutoProcessor.from_pretrained(setting.model)
        self._model: Any = AutoModelForImageTextToText.from_pretrained(setting.model, dtype=torch.float32)
        self._model.eval()

    def answer(self, prompt: Prompt, keep: float, count: int) -> list[int]:
        """The first `count` tokens; behind the end of a turn the reference goes on, as it is not told to stop."""
        import torch

        from mmspec.bench.fastv_reference import Reference

        inputs = self._inputs(prompt)
        reference = Reference(self._model, self._layer, keep)
        tokens: list[int] = []
        with torch.inference_mode(), reference.pruning(inputs["input_ids"][0]):
            while len(tokens) < count:
                logits = self._model(**_extended(inputs, tokens), use_cache=False).logits
                tokens.append(int(logits[0, -1].argmax()))
        return tokens

    def _inputs(self, prompt: Prompt) -> dict[str, Any]:
        from mmspec.pictures import decoded

        assert prompt.picture is not None  # without one there is nothing to prune
        parts = [{"type": "image"}, {"type": "text", "text": prompt.question}]
        text = self._processor.apply_chat_template(
            [{"role": "user", "content": parts}], add_generation_prompt=True, tokenize=False
        )
        return dict(self._processor(text=[text], images=[decoded(prompt.picture)], return_tensors="pt"))


def _extended(inputs: dict[str, Any], answer: list[int]) -> dict[str, Any]:
    """The prompt with the answer so far behind it."""
    import torch

    more = torch.tensor([answer], dtype=torch.long)
    fillers = {"input_ids": more, "attention_mask": torch.ones_like(more), "mm_token_type_ids": more * 0}
    return {
        name: torch.cat([value, fillers[name]], 1) if name in fillers else value
        for name, value in inputs.items()
    }
