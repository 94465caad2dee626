"""Whether the head was trained for this target and not for one of the same sizes."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from mmspec.heads.check.mismatch import Mismatch
from mmspec.heads.formats.head import Head
from mmspec.heads.target import Target

_ASPECT = "origin"


def check_origin(head: Head, target: Target) -> Iterator[Mismatch]:
    """The target's fingerprint where the head has one, otherwise the verifier's name and architecture."""
    trained_for = head.settings.target_fingerprint
    if trained_for is not None:
        if trained_for != target.fingerprint:
            found = f"the head was trained for the weights {trained_for[:12]}, these are {target.fingerprint[:12]}"
            mend = (
                "give the target that it was trained for, or train it again; to use it all the same, "
                "set mmspec.target_fingerprint to null in its config.json"
            )
            # Quantised weights differ, and behave nearly the same.
            yield Mismatch(_ASPECT, found, mend, fatal=not target.quantised)
        return
    yield from _check_verifier((head.config.get("speculators_config") or {}).get("verifier") or {}, target)


def _check_verifier(verifier: dict[str, Any], target: Target) -> Iterator[Mismatch]:
    names = [str(name) for name in verifier.get("architectures") or []]
    if names and target.architectures and not set(names) & set(target.architectures):
        found = f"the head was trained for a {names[0]}, the target is a {target.architectures[0]}"
        yield Mismatch(_ASPECT, found, "give the target that it was trained for")
        return
    name = str(verifier.get("name_or_path") or "")
    if name and not _same(name, target):
        found = f"the head was trained for {name}, which is called otherwise than {target.folder.name}"
        yield Mismatch(_ASPECT, found, "make sure that the weights are the same", fatal=False)


def _same(name: str, target: Target) -> bool:
    """Whether a verifier's name may be this target's: names of folders, and of the hub's cache, change."""
    own = PurePath(name).name.lower()
    parts = [part.lower() for part in target.folder.resolve().parts]
    return own in parts or any(part.endswith(f"--{own}") for part in parts)
