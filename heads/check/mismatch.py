"""One thing in which a head does not fit its target."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Mismatch:
    """A line for whoever chose the head.

    Attributes:
        aspect: what was looked at: vocabulary, layers, rope, ...
        found: what is there, and what should be.
        mend: what to do about it.
        fatal: whether an engine would fail, or draft rubbish; otherwise the head works, worse than it could.
    """

    aspect: str
    found: str
    mend: str
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.aspect}: {self.found}; {self.mend}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
