"""A batch's arithmetic: how many tokens of each request the deeper layers see."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mmspec.encoders.fastv.book import Step
from mmspec.encoders.fastv.prompt import Prompt


@dataclass(frozen=True)
class Rows:
    """The requests of a step, in the order in which the runner has put them.

    Attributes:
        scheduled: tokens of each request  # [requests]
        dropped: of each sequence, the tokens without KV in the deeper layers  # [requests]
        leaving: of those, the tokens of this step  # [requests]
        prompts: the prompts that this step prunes, and the row of the batch at which each begins.
    """

    scheduled: np.ndarray
    dropped: np.ndarray
    leaving: np.ndarray
    prompts: tuple[tuple[int, Prompt], ...]

    @cached_property
    def left_before(self) -> np.ndarray:
        """How many tokens leave ahead of each request, and in all  # [requests + 1]"""
        return np.concatenate([[0], self.leaving.cumsum()]).astype(np.int32)

    @property
    def tokens(self) -> int:
        return int(self.scheduled.sum())

    @property
    def remaining(self) -> int:
        return self.tokens - int(self.leaving.sum())

    @cached_property
    def certain(self) -> np.ndarray:
        """Rows of the batch that stay whatever the scores say, ascending."""
        stays = np.ones(self.tokens, dtype=bool)
        for start, prompt in self.prompts:
            stays[start + prompt.visual] = False
        return stays.nonzero()[0]


def arrange(step: Step, names: Sequence[str]) -> Rows:
    """The rows of `step`, for requests in the order of `names`."""
    scheduled = np.array([step.scheduled[name] for name in names], dtype=np.int32)
    starts = scheduled.cumsum() - scheduled
    prompts = [(int(start), step.pruned.get(name)) for start, name in zip(starts, names, strict=True)]
    return Rows(
        scheduled=scheduled,
        dropped=np.array([step.dropped.get(name, 0) for name in names], dtype=np.int32),
        leaving=np.array([prompt.dropped if prompt else 0 for _, prompt in prompts], dtype=np.int32),
        prompts=tuple((start, prompt) for start, prompt in prompts if prompt),
    )
