"""All checks of a head against a target."""

from collections.abc import Iterator
from pathlib import Path

from mmspec.errors import MmspecError
from mmspec.heads.check.engine import check_dtype, check_family, check_parallel, check_vision
from mmspec.heads.check.layers import check_layers
from mmspec.heads.check.mismatch import Mismatch
from mmspec.heads.check.origin import check_origin
from mmspec.heads.check.rope import check_rope
from mmspec.heads.check.vocabulary import check_own_vocabulary, check_vocabulary
from mmspec.heads.check.weights import check_weights
from mmspec.heads.formats.head import Head, read_head
from mmspec.heads.target import find_target

_SHOWN = 3  # mismatches in an exception's line


def check_head(
    head: Path,
    target: Path | str,
    *,
    draft_tensor_parallel_size: int = 1,
    tensor_parallel_size: int | None = None,
    dtype: str | None = None,
) -> list[Mismatch]:
    """Everything in which the head does not fit the target, what would stop an engine first.

    Args:
        head: folder of the head, in any format that `mmspec.heads.formats` reads.
        target: folder or hub name; of a hub name that is not on this disk nothing can be checked but the head itself.
        draft_tensor_parallel_size: what vLLM is given by this name.
        tensor_parallel_size: parts that the target is cut into, and the head with it, where known.
        dtype: what the engine runs in; the target's own if not given.

    Raises:
        MmspecError: head or target cannot be read at all.
    """
    read = read_head(head)
    found = [*_check_alone(read), *check_parallel(read, draft_tensor_parallel_size, tensor_parallel_size)]
    found += _check_target(read, target, dtype)
    return sorted(found, key=lambda mismatch: not mismatch.fatal)


def check_head_alone(head: Path) -> list[Mismatch]:
    """What can be said of a head without its target."""
    return list(_check_alone(read_head(head)))


def require_fit(
    head: Path | str,
    target: Path | str,
    *,
    draft_tensor_parallel_size: int = 1,
    tensor_parallel_size: int | None = None,
    dtype: str | None = None,
) -> None:
    """Does nothing when the head fits, or is a hub name, whose files come only with the engine.

    Raises:
        MmspecError: an engine would fail or draft rubbish with it; the first reasons, with their mend.
    """
    if not Path(head).is_dir():
        return
    found = check_head(
        Path(head),
        target,
        draft_tensor_parallel_size=draft_tensor_parallel_size,
        tensor_parallel_size=tensor_parallel_size,
        dtype=dtype,
    )
    if reasons := [str(mismatch) for mismatch in found if mismatch.fatal]:
        more = f" (and {len(reasons) - _SHOWN} more: mmspec head check)" if len(reasons) > _SHOWN else ""
        raise MmspecError(f"head {head} does not fit {target}: {' | '.join(reasons[:_SHOWN])}{more}")


def _check_alone(head: Head) -> Iterator[Mismatch]:
    yield from check_weights(head)
    yield from check_own_vocabulary(head)


def _check_target(head: Head, name: Path | str, dtype: str | None) -> Iterator[Mismatch]:
    try:
        target = find_target(name)
        reason = (
            "neither a folder nor a model in the hub's cache on this disk; give its folder, or download it"
        )
    except MmspecError as error:  # vLLM may still know how to read it
        target, reason = None, str(error)
    if target is None:
        found, _, mend = reason.rpartition("; ")
        yield Mismatch("target", f"{name} could not be read: {found}", mend, fatal=False)
        return
    yield from check_family(target)
    yield from check_vision(head, target)
    yield from check_vocabulary(head, target)
    yield from check_layers(head, target)
    yield from check_rope(head, target)
    yield from check_dtype(head, target, dtype)
    yield from check_origin(head, target)
