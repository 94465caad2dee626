"""How many visual tokens go on, and how a request says so."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmspec.encoders.fastv.settings import FastVSettings
from mmspec.errors import MmspecError

KEEP, KEEP_TOKENS = "fastv_keep", "fastv_keep_tokens"  # in `SamplingParams.extra_args`


@dataclass(frozen=True)
class Budget:
    """A share of the visual tokens, or at most `tokens` of them."""

    keep: float = 1.0
    tokens: int | None = None

    def kept(self, visual: int) -> int:
        """How many of `visual` tokens go on: the nearest number to the share, and never none."""
        wanted = math.floor(self.keep * visual + 0.5) if self.tokens is None else self.tokens
        return min(visual, max(wanted, 1))

    def to_arguments(self) -> dict[str, float | int]:
        """What stands for it in `SamplingParams.extra_args`."""
        return {KEEP: self.keep} if self.tokens is None else {KEEP_TOKENS: self.tokens}


def engine_budget(settings: FastVSettings) -> Budget:
    return Budget(keep=settings.keep, tokens=settings.keep_tokens)


def requested_budget(arguments: Mapping[str, Any] | None) -> Budget | None:
    """What a request's extra arguments ask for, if anything.

    Raises:
        MmspecError: a share or number that means nothing, or both of them.
    """
    keep, tokens = (arguments or {}).get(KEEP), (arguments or {}).get(KEEP_TOKENS)
    if keep is not None and tokens is not None:
        raise MmspecError(f"{KEEP} and {KEEP_TOKENS} are both given; give only one of them")
    if keep is not None:
        if not _is_number(keep) or not 0 < keep <= 1:
            raise MmspecError(
                f"{KEEP}: {keep!r} is no share; give a number above 0 and up to 1 (1 keeps all)"
            )
        return Budget(keep=float(keep))
    if tokens is not None:
        if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
            raise MmspecError(f"{KEEP_TOKENS}: {tokens!r} is no number of tokens; give a whole number from 1")
        return Budget(tokens=tokens)
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
