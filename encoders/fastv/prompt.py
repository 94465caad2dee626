"""What pruning has to know of one request's prompt: plain numbers, the same in the scheduler and in every worker."""

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mmspec.encoders.fastv.budget import Budget, requested_budget

VISUAL = ("image", "video")
TELL = "fastv_tell"  # in `SamplingParams.extra_args`: the name under which a worker notes what was kept


@dataclass(frozen=True)
class Prompt:
    """A prompt with pictures of which some tokens are to be dropped.

    Attributes:
        name: the request's id in the engine.
        length: tokens of the prompt.
        pictures: for each picture, the indices of its visual tokens in the prompt, ascending.
        budget: how many stay.
        per_image: the budget holds for each picture.
        seed: the same wherever this prompt is pruned, for criteria that draw lots.
        tell: the name under which somebody wants to know which visual tokens were kept.
    """

    name: str
    length: int
    pictures: tuple[np.ndarray, ...]
    budget: Budget
    per_image: bool = False
    seed: int = 0
    tell: str | None = None

    @cached_property
    def visual(self) -> np.ndarray:
        """Indices of all visual tokens in the prompt, ascending  # [seen]"""
        return np.concatenate(self.pictures)

    @cached_property
    def quotas(self) -> list[tuple[int, int]]:
        """Sizes of the consecutive groups of `visual` that are ranked apart, and how many of each stay."""
        sizes = [len(picture) for picture in self.pictures] if self.per_image else [self.seen]
        return [(size, self.budget.kept(size)) for size in sizes]

    @property
    def seen(self) -> int:
        return len(self.visual)

    @cached_property
    def kept(self) -> int:
        return sum(kept for _, kept in self.quotas)

    @property
    def dropped(self) -> int:
        return self.seen - self.kept


def prunable_prompt(request: Any, *, per_image: bool) -> Prompt | None:
    """The prompt of a newly scheduled request (vLLM's `NewRequestData`), or None when nothing of it is dropped.

    Only what the user's side has settled in the extra arguments counts: that is where requests are kept apart in
    the prefix cache, and a request that did not pass there must not be pruned.
    """
    arguments = (request.sampling_params.extra_args or {}) if request.sampling_params else {}
    budget = requested_budget(arguments)
    if budget is None or request.prompt_token_ids is None:
        return None
    pictures = tuple(
        picture_indices(feature.mm_position) for feature in request.mm_features if feature.modality in VISUAL
    )
    if not pictures:
        return None
    seed = zlib.crc32(np.asarray(request.prompt_token_ids, dtype=np.int64).tobytes())
    length = len(request.prompt_token_ids)
    tell = str(arguments[TELL]) if TELL in arguments else None
    prompt = Prompt(request.req_id, length, pictures, budget, per_image, seed, tell)
    return prompt if prompt.dropped else None


def picture_indices(place: Any) -> np.ndarray:
    """Indices in the prompt of those of a picture's tokens that carry features (of vLLM's `PlaceholderRange`)."""
    inside = np.arange(place.length) if place.is_embed is None else place.is_embed.nonzero()[:, 0].numpy()
    return (place.offset + inside).astype(np.int64)
