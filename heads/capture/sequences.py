"""What passes between the engine and the loop of capture: prompts, answers, states. Light: vLLM is not imported."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch


@dataclass(frozen=True)
class Prompt:
    """A conversation as the engine takes it: token ids with every placeholder expanded."""

    engine_input: dict[str, Any]

    @property
    def token_ids(self) -> list[int]:
        ids: list[int] = self.engine_input["prompt_token_ids"]
        return ids

    @property
    def places(self) -> list[Any]:
        """Where the pictures are (vLLM's `PlaceholderRange`), in the order of the processor."""
        return list(self.engine_input.get("mm_placeholders", {}).get("image", []))

    @property
    def picture_keys(self) -> list[str]:
        """Keys of the pictures in the order of their positions; a picture may occur more than once."""
        keys = self.engine_input.get("mm_hashes", {}).get("image", [])
        starts = [place.offset for place in self.places]
        return [key for _, key in sorted(zip(starts, keys, strict=True))]

    def is_visual(self) -> torch.Tensor:
        """Which positions hold an embedding of a picture: [tokens], bool."""
        visual = torch.zeros(len(self.token_ids), dtype=torch.bool)
        for place in self.places:
            span = slice(place.offset, place.offset + place.length)
            visual[span] = True if place.is_embed is None else place.is_embed
        return visual

    def extended(self, answer: Sequence[int]) -> "Prompt":
        """The same conversation with the tokens of an answer behind it."""
        ids = [*self.token_ids, *answer]
        return replace(self, engine_input={**self.engine_input, "prompt_token_ids": ids})


@dataclass(frozen=True)
class Answer:
    """What the target said; the text is what later turns see of it."""

    token_ids: list[int]
    text: str


@dataclass(frozen=True)
class Answered:
    """A prompt with the answers in it; `spans` are the target's own tokens, from the first to behind the last."""

    prompt: Prompt
    spans: tuple[tuple[int, int], ...]

    def loss_mask(self) -> torch.Tensor:
        """Which tokens the target said: [tokens], bool."""
        mask = torch.zeros(len(self.prompt.token_ids), dtype=torch.bool)
        for start, end in self.spans:
            mask[start:end] = True
        return mask


@dataclass(frozen=True)
class States:
    """What the target computed over a sequence of n tokens."""

    hidden_states: torch.Tensor  # [n, auxiliary layers × hidden]: inputs of those layers, residual added
    last_hidden: torch.Tensor  # [n, hidden]: output of the last layer, before the final norm
    mrope_positions: torch.Tensor | None  # [3, n]
