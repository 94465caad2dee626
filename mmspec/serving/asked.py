"""What a request asks of mmspec in its extra arguments (`vllm_xargs` over HTTP, `extra_args` in Python)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmspec.errors import MmspecError

STATS, DRAFT = "mmspec_stats", "mmspec_draft"
DETAILS = ("tokens", "kept")

Arguments = Mapping[str, Any] | None


@dataclass(frozen=True)
class Asked:
    """Statistics that a request wants with its answer.

    Attributes:
        tokens: where each token of the answer came from.
        kept: which visual tokens went on behind FastV's layer.
    """

    tokens: bool = False
    kept: bool = False


def asked_statistics(arguments: Arguments) -> Asked | None:
    """The statistics that a request asks for; None when it asks for none.

    Raises:
        MmspecError: a value that means nothing.
    """
    wanted = (arguments or {}).get(STATS)
    if wanted in (None, False):
        return None
    if wanted == 1:  # JSON's true arrives as 1
        return Asked()
    names = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(names, list) or any(name not in DETAILS for name in names):
        raise MmspecError(
            f"{STATS}: {wanted!r} is not known; give true, or a list of {' and '.join(DETAILS)}"
        )
    return Asked(**dict.fromkeys(names, True))


def wants_drafts(arguments: Arguments) -> bool:
    """Whether tokens may be drafted for a request: where it does not say, they may.

    Raises:
        MmspecError: a value that means nothing.
    """
    wanted = (arguments or {}).get(DRAFT, True)
    if wanted not in (0, 1):
        raise MmspecError(f"{DRAFT}: {wanted!r} is not known; give true or false")
    return bool(wanted)


def settled(arguments: Arguments) -> tuple[Asked | None, bool]:
    """Statistics and drafting as an engine takes them, which must not end for a value that got past the checks."""
    try:
        return asked_statistics(arguments), wants_drafts(arguments)
    except MmspecError:
        return None, True


def require_answerable(params: Any, scheduler: Any) -> None:
    """Raises MmspecError when a request asks for something that is wrong, or that its engine cannot give.

    Args:
        params: vLLM's `SamplingParams`, or parameters of another kind of request.
        scheduler: what the engine was told to take as its scheduler, if anything.
    """
    arguments = getattr(params, "extra_args", None)
    asked, drafts = asked_statistics(arguments), wants_drafts(arguments)
    if asked is None and drafts:
        return
    if "mmspec." not in str(scheduler):
        raise MmspecError(
            f"{DRAFT if asked is None else STATS}: this engine runs without mmspec's scheduler; start it with "
            "mmspec serve, or leave that out"
        )
    if asked is not None and asked.tokens and params.n > 1:
        raise MmspecError(f"{STATS}: tokens are told of one answer only; leave n at 1, or tokens out")
