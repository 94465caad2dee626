"""Text for the language model to keep its manners by: what it says itself, at temperature 1.

Cross-entropy on a model's own samples is the divergence from that model, up to a constant, so training on them
holds the adapted model near the original without a second pass through it.
"""

import json
import os
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

_CHAT = "<|im_start|>user\n"
_PROSE = (
    "The",
    "In the",
    "When",
    "It was",
    "She",
    "He said",
    "People",
    "There is",
    "To make",
    "One of the",
    "After",
    "My",
)
_CHATS = 48
_PROSES_AN_OPENING = 6
_LENGTH = 64  # tokens


def own_words(folder: Path, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """Samples of the original model as token ids, made once and kept in `folder`."""
    kept = folder / "manners.json"
    if not kept.exists():
        torch.manual_seed(0)
        openings = [_CHAT] * _CHATS + list(_PROSE) * _PROSES_AN_OPENING
        samples = _sample(openings, model, tokenizer)
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / "manners.part"
        part.write_text(json.dumps(samples))
        os.replace(part, kept)
    return json.loads(kept.read_text())


@torch.no_grad()
def _sample(
    openings: list[str], model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase
) -> list[list[int]]:
    """One continuation of each opening, the opening included."""
    tokenizer.padding_side = "left"
    prompts = tokenizer(openings, return_tensors="pt", add_special_tokens=False, padding=True)
    length = prompts.input_ids.shape[1]
    out = model.generate(
        **prompts,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=_LENGTH,
        eos_token_id=0,  # past the end of a turn a chat goes on with the next
    )
    starts = length - prompts.attention_mask.sum(1)
    return [ids[start:].tolist() for ids, start in zip(out, starts, strict=True)]
