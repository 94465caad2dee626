"""What the engine is compared with: a plain greedy loop in transformers and a plain speculative decoder.

Plainness is the point: no key-value cache, one sequence, the whole forward pass again for each step.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Image

Proposer = Callable[[list[int]], list[int]]
"""Tokens so far → the next tokens it would draft, perhaps none."""


@dataclass
class Speculation:
    """A speculative decoder's run. Steps without a draft are not counted, as in vLLM's own statistics."""

    tokens: list[int]
    proposed: list[int] = field(default_factory=list)  # per verification
    accepted: list[int] = field(default_factory=list)  # per verification


class Oracle:
    """A checkpoint in transformers, in float32 on the CPU."""

    def __init__(self, folder: Path) -> None:
        from transformers import (
            AutoModelForCausalLM,
            AutoModelForImageTextToText,
            AutoProcessor,
            AutoTokenizer,
        )

        multimodal = (folder / "processor_config.json").exists()
        self.processor: Any = (AutoProcessor if multimodal else AutoTokenizer).from_pretrained(folder)
        architecture = AutoModelForImageTextToText if multimodal else AutoModelForCausalLM
        self.model: Any = architecture.from_pretrained(folder, dtype=torch.float32).eval()

    def prompt(self, text: str, images: Sequence[Image] = ()) -> dict[str, torch.Tensor]:
        """Applies the checkpoint's own processor: token ids, pixel values and whatever else the model takes."""
        return dict(self.processor(text=[text], images=list(images) or None, return_tensors="pt"))

    @torch.inference_mode()
    def predict(self, prompt: dict[str, torch.Tensor], answer: list[int]) -> list[int]:
        """Returns the greedy next token after the prompt and after each answer token: `1 + len(answer)` of them."""
        placeholder = getattr(self.model.config, "image_token_id", None)
        # Prompt lookup may draft a placeholder; transformers would look for its picture. It is never accepted,
        # so what stands there does not matter.
        answer_ids = torch.tensor(
            [[0 if token == placeholder else token for token in answer]], dtype=torch.long
        )
        inputs = {**prompt, "input_ids": torch.cat([prompt["input_ids"], answer_ids], dim=1)}
        for name, filler in (("attention_mask", 1), ("mm_token_type_ids", 0)):
            if name in inputs:
                inputs[name] = torch.cat([inputs[name], torch.full_like(answer_ids, filler)], dim=1)
        with _one_thread():
            logits = self.model(**inputs, use_cache=False).logits[0]  # [prompt + answer, vocabulary]
        return logits[prompt["input_ids"].shape[1] - 1 :].argmax(-1).tolist()

    def greedy(self, prompt: dict[str, torch.Tensor], max_tokens: int) -> list[int]:
        answer: list[int] = []
        while len(answer) < max_tokens:
            answer.append(self.predict(prompt, answer)[-1])
        return answer


def speculate(
    oracle: Oracle, prompt: dict[str, torch.Tensor], propose: Proposer, max_tokens: int
) -> Speculation:
    """Greedy speculative decoding: draft, verify all drafts in one pass, keep what matches plus the bonus token."""
    prompt_ids = prompt["input_ids"][0].tolist()
    run = Speculation(tokens=oracle.predict(prompt, []))  # prefill gives the first token, without a draft
    while len(run.tokens) < max_tokens:
        draft = propose(prompt_ids + run.tokens)
        predictions = oracle.predict(prompt, run.tokens + draft)[len(run.tokens) :]
        accepted = 0
        while accepted < len(draft) and draft[accepted] == predictions[accepted]:
            accepted += 1
        run.tokens += [*draft[:accepted], predictions[accepted]]
        if draft:
            run.proposed.append(len(draft))
            run.accepted.append(accepted)
    run.tokens = run.tokens[:max_tokens]
    return run


def prompt_lookup(
    *, count: int, shortest: int, longest: int, latest: bool = False, padded: bool = False
) -> Proposer:
    """Prompt lookup: what followed the longest earlier occurrence of the last tokens.

    Args:
        count: how many tokens to propose at most.
        shortest: least length of the n-gram.
        longest: greatest length of the n-gram.
        latest: of several occurrences take the last one (vLLM's V2 runner), not the first (V1).
        padded: fill up to `count` with the last token, also when nothing is found (V2).
    """

    def propose(tokens: list[int]) -> list[int]:
        found = look_up(tokens)
        return found + tokens[-1:] * (count - len(found)) if padded else found

    def look_up(tokens: list[int]) -> list[int]:
        for length in range(longest, shortest - 1, -1):
            starts = range(len(tokens) - length)  # all but the suffix itself
            for start in reversed(starts) if latest else starts:
                if tokens[start : start + length] == tokens[-length:]:
                    return tokens[start + length : start + length + count]
        return []

    return propose


@contextmanager
def _one_thread() -> Iterator[None]:
    """More threads only wait for each other on a tiny model, and on a busy machine for a long time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
