"""Where the tokens of an answer came from, step by step, as the scheduler sees it."""

from collections.abc import Sequence
from dataclasses import dataclass

# `[accepted, new, *drafted]` in a report: one flat list a step, since a report goes from process to process.
Record = list[int]


@dataclass(frozen=True)
class Step:
    """One pass of the target.

    Attributes:
        drafted: the ids that were drafted; -1 where the scheduler is not told them (asynchronous scheduling).
        accepted: how many of them the target accepted.
        new: tokens that the answer got; less than accepted + 1 where it ended within them.
    """

    drafted: tuple[int, ...]
    accepted: int
    new: int

    def to_record(self) -> Record:
        return [self.accepted, self.new, *self.drafted]

    @classmethod
    def from_record(cls, record: Sequence[int]) -> "Step":
        accepted, new, *drafted = record
        return cls(tuple(drafted), accepted, new)

    @property
    def rejected(self) -> list[int]:
        """Ids that were drafted in vain; empty where they are not known."""
        return [token for token in self.drafted[self.accepted :] if token >= 0]
