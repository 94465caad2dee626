"""Tokens: the head must mean the same by them as the target."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmspec.errors import MmspecError
from mmspec.heads.check.mismatch import Mismatch
from mmspec.heads.formats.head import Head
from mmspec.heads.formats.tensors import read_json
from mmspec.heads.formats.vocabulary import inconsistency
from mmspec.heads.target import Target

_ASPECT = "vocabulary"
# Files that hold a whole vocabulary, best known first.
_TOKENIZERS = ("tokenizer.json", "vocab.json", "tokenizer.model", "tekken.json")


def check_own_vocabulary(head: Head) -> Iterator[Mismatch]:
    """The head's `d2t` and `t2d` by themselves."""
    known, drafted = head.layer["vocab_size"], head.config["draft_vocab_size"]
    if drafted > known:
        found = f"draft_vocab_size {drafted} is above vocab_size {known}"
        yield Mismatch(
            _ASPECT, found, "a head says no more tokens than it reads; save it again with the right sizes"
        )
    elif drafted == known and "d2t" in head.tensors:
        found = f"d2t is there, though the head says all {known} tokens, and vLLM has no place for it"
        yield Mismatch(_ASPECT, found, "leave d2t out: mmspec head convert does")
    elif wrong := inconsistency(head.d2t, head.t2d, known):
        yield Mismatch(_ASPECT, wrong, "save the head again, with offsets to ascending tokens in d2t")
    elif drafted != known and head.t2d is None:
        found = "t2d is missing; vLLM does without it, but the head cannot be trained on"
        yield Mismatch(_ASPECT, found, "mmspec head convert makes it from d2t", fatal=False)


def check_vocabulary(head: Head, target: Target) -> Iterator[Mismatch]:
    """The head's vocabulary against the target's."""
    known = head.layer["vocab_size"]
    if known != target.vocab_size:
        found = f"the head was trained for {known} tokens, the target has {target.vocab_size}"
        yield Mismatch(
            _ASPECT, found, "give the target that it was trained for, or train a head for this one"
        )
    for name in _TOKENIZERS:
        ours, theirs = head.folder / name, target.folder / name
        if ours.is_file() and theirs.is_file():
            yield from _compare(ours, theirs)
            return


def _compare(ours: Path, theirs: Path) -> Iterator[Mismatch]:
    try:
        first, second = _tokens(ours), _tokens(theirs)
    except MmspecError as error:
        yield Mismatch(
            "tokenizer", str(error).rpartition(";")[0], "copy the tokenizer files again", fatal=False
        )
        return
    if first == second:
        return
    found = f"{ours.name} of the head differs from the target's"
    if isinstance(first, dict) and isinstance(second, dict):
        changed = sorted(
            token for token in first.keys() | second.keys() if first.get(token) != second.get(token)
        )
        example = f"{changed[0]!r} is {first.get(changed[0])} here and {second.get(changed[0])} there"
        found += f" in {len(changed)} tokens: {example}"
    yield Mismatch("tokenizer", found, "give the target that the head was trained for")


def _tokens(path: Path) -> dict[str, Any] | bytes:
    """Token to id, where the file's format is known; the file itself otherwise."""
    if path.name == "vocab.json":
        return read_json(path)
    if path.name != "tokenizer.json":
        return path.read_bytes()
    content = read_json(path)
    vocabulary = content.get("model", {}).get("vocab", {})
    added = {token["content"]: token["id"] for token in content.get("added_tokens", [])}
    if isinstance(vocabulary, list):  # Unigram: [token, score] in the order of ids
        vocabulary = {token: index for index, (token, _) in enumerate(vocabulary)}
    return {**vocabulary, **added}
