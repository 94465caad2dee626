"""A target in a few lines, with answers and states that follow from its input, in place of an engine."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from mmspec.errors import MmspecError
from mmspec.heads.capture import CaptureSettings, CaptureTarget
from mmspec.heads.capture.sequences import Answer, Prompt, States

HIDDEN, AUX = 8, (1, 2)
ROLES = {"system": 1, "user": 2, "assistant": 3}
END, PLACEHOLDER = 4, 5
TARGET = CaptureTarget(
    model="fake",
    fingerprint="f" * 64,
    dtype="float32",
    num_layers=4,
    hidden_size=HIDDEN,
    vocab_size=256,
    multimodal=True,
    mrope=True,
    aux_layer_ids=AUX,
)


class FakeEngine:
    """Tokens are bytes of the text; a picture takes a placeholder for each pixel of its width.

    Args:
        canonical: whether an answer's tokens are those that its text has in a later prompt.
    """

    def __init__(self, *, longest: int = 500, canonical: bool = True) -> None:
        self.longest = longest
        self._shift = 0 if canonical else 100
        self._features: dict[str, torch.Tensor] = {}
        self.batches: list[int] = []

    def render(self, messages: list[dict[str, Any]]) -> Prompt:
        ids: list[int] = []
        keys, places = [], []
        for message in messages:
            ids.append(ROLES[message["role"]])
            content = message["content"]
            for part in [{"text": content}] if isinstance(content, str) else content:
                if "image_pil" in part:
                    width = part["image_pil"].width
                    places.append(SimpleNamespace(offset=len(ids), length=width, is_embed=None))
                    keys.append(part["uuid"])
                    ids += [PLACEHOLDER] * width
                    self._features[part["uuid"]] = features_of(part["uuid"], width)
                else:
                    ids += part["text"].encode()
            ids.append(END)
        ids.append(ROLES["assistant"])
        return Prompt(
            {"prompt_token_ids": ids, "mm_hashes": {"image": keys}, "mm_placeholders": {"image": places}}
        )

    def answer(
        self,
        prompts: Sequence[Prompt],
        *,
        temperature: float,
        top_p: float,
        most: Sequence[int],
        seeds: Sequence[int],
    ) -> list[Answer]:
        self.batches.append(len(prompts))
        return [
            self._say(f"{prompt.token_ids} {seed if temperature else 0}", limit)
            for prompt, limit, seed in zip(prompts, most, seeds, strict=True)
        ]

    def _say(self, seen: str, limit: int) -> Answer:
        text = "".join(chr(97 + int(digit, 16)) for digit in hashlib.sha256(seen.encode()).hexdigest()[:9])
        tokens = [*(byte + self._shift for byte in text.encode()), END][:limit]
        return Answer(tokens, text)

    def extract(self, sequences: Sequence[Prompt]) -> Iterator[States]:
        return (states_of(sequence.token_ids) for sequence in sequences)

    def features(self, key: str) -> torch.Tensor:
        if key not in self._features:
            raise MmspecError("not encoded")
        return self._features[key]

    def forget_features(self, key: str) -> None:
        self._features.pop(key, None)


def starts(engine: FakeEngine | None = None) -> Any:
    """What `capture` starts its engine with."""

    @contextmanager
    def start(target: CaptureTarget, spool: Path) -> Iterator[FakeEngine]:
        yield engine or FakeEngine()

    return start


def states_of(ids: Sequence[int]) -> States:
    """Each state is made of all tokens up to its own."""
    seen = torch.tensor(ids, dtype=torch.float32).cumsum(0)[:, None]
    layers = torch.arange(len(AUX) * HIDDEN)
    return States(
        hidden_states=torch.sin(seen + layers),
        last_hidden=torch.cos(seen + torch.arange(HIDDEN)),
        mrope_positions=torch.arange(len(ids)).expand(3, -1).contiguous(),
    )


def features_of(key: str, width: int) -> torch.Tensor:
    return torch.arange(width * HIDDEN, dtype=torch.float32).view(width, HIDDEN) + int(key[:2], 16)


def settings(prompts: Path, folder: Path, **given: Any) -> CaptureSettings:
    return CaptureSettings(prompts=prompts, folder=folder, **given)


def user(text: str, *pictures: str) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in pictures]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}
