"""Text for the language model to keep its manners by: what it says itself, at temperature 1.

Chats begin as the chat template does, prose with a word drawn at random from the vocabulary.
"""

import json
import os
import random
import re
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

_CHAT = "<|im_start|>user\n"
_CHATS = 160
_PROSES = 608
_AT_ONCE = 128
_LENGTH = 64  # tokens
_WORD = re.compile("[A-Z][a-z]{1,9}")


def own_words(folder: Path, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    """Samples of the original model as token ids, made once and kept in `folder`."""
    kept = folder / "manners.json"
    if not kept.exists():
        torch.manual_seed(0)
        openings = [_CHAT] * _CHATS + _words(tokenizer, _PROSES)
        samples = []
        for start in range(0, len(openings), _AT_ONCE):
            samples += _sample(openings[start : start + _AT_ONCE], model, tokenizer)
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / "manners.part"
        part.write_text(json.dumps(samples))
        os.replace(part, kept)
    return json.loads(kept.read_text())


def user_turns(
    count: int, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, seed: int = 1
) -> list[str]:
    """What the original model imagines users to say, distinct and in whole turns."""
    torch.manual_seed(seed)
    end = tokenizer.encode("<|im_end|>", add_special_tokens=False)[0]
    found: dict[str, None] = {}
    while len(found) < count:
        for ids in _sample([_CHAT] * _AT_ONCE, model, tokenizer):
            if end in ids and (text := tokenizer.decode(ids[: ids.index(end)]).removeprefix(_CHAT).strip()):
                found[text] = None
    return list(found)[:count]


def _words(tokenizer: PreTrainedTokenizerBase, count: int) -> list[str]:
    """Capitalised words of one token each: most texts begin so."""
    words = sorted(token for token in tokenizer.get_vocab() if _WORD.fullmatch(token))
    return random.Random(0).sample(words, count)


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
