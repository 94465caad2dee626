"""One change to a function of another package, with its reason and its end."""

import inspect
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from mmspec.errors import MmspecError
from mmspec.patches.imports import when_imported

_log = logging.getLogger("vllm.plugins.mmspec")
_pending: set[str] = set()  # targets whose modules are waited for

_MARK = "__mmspec_patch__"


class PatchError(MmspecError):
    """A patch that cannot be applied: its target is gone, has changed, or is patched already."""


def is_patched(function: Any) -> bool:
    """Whether a function is a patch's replacement."""
    return hasattr(function, _MARK)


@dataclass(frozen=True, kw_only=True)
class Patch:
    """Replaces `target` by `wrap(original)`.

    Attributes:
        target: what is replaced, as `module:attribute` or `module:Class.method`.
        parameters: names of the target's parameters; others mean that it changed and needs a new look.
        wrap: makes the replacement from the original.
        why: what would go wrong without it.
        upstream: the issue or pull request at the patched project, or that there is none.
        versions: versions of the patched package that it was written for.
        remove_when: what would make it go.
        lazy: wait until vLLM imports the target's module; for modules that are too heavy, or too early, to be
            imported when plugins load.
    """

    target: str
    parameters: tuple[str, ...]
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
    why: str
    upstream: str
    versions: str
    remove_when: str
    lazy: bool = False

    @property
    def applied(self) -> bool:
        """Whether this process has the patch, or will have it as soon as it has the target."""
        if self._waits:
            return self.target in _pending
        owner, name = self._place()
        return getattr(vars(owner).get(name), _MARK, None) == self.target

    def apply(self) -> None:
        """Puts the replacement in place, in this process; a lazy one as soon as the target is there.

        Raises:
            PatchError: the target is missing, has other parameters, or was patched before.
        """
        if self._waits:
            if self.applied:
                raise self._twice()
            _pending.add(self.target)
            when_imported(self._module, self._apply_late)
        else:
            self._replace()

    def _replace(self) -> None:
        owner, name = self._place()
        original = vars(owner).get(name)
        if not callable(original):
            raise PatchError(f"{self.target}: not found; this patch was written for {self.versions}")
        if is_patched(original):
            raise self._twice()
        found = tuple(inspect.signature(original).parameters)
        if found != self.parameters:
            raise PatchError(
                f"{self.target}: takes ({', '.join(found)}), not ({', '.join(self.parameters)}) as in "
                f"{self.versions}; install one of those versions or rework the patch"
            )
        replacement = self.wrap(original)
        setattr(replacement, _MARK, self.target)
        setattr(owner, name, replacement)

    def _apply_late(self) -> None:
        _pending.discard(self.target)
        try:
            self._replace()
        except PatchError as error:  # an import of vLLM's must not fail for it
            _log.warning("mmspec: left out a patch: %s", error)

    def _twice(self) -> PatchError:
        return PatchError(f"{self.target}: patched already in this process; apply each patch once")

    @property
    def _module(self) -> str:
        return self.target.partition(":")[0]

    @property
    def _waits(self) -> bool:
        return self.lazy and self._module not in sys.modules

    def _place(self) -> tuple[Any, str]:
        """The module or class that holds the target, and the target's name in it."""
        path = self.target.partition(":")[2]
        *owners, name = path.split(".")
        try:
            place: Any = import_module(self._module)
            for owner in owners:
                place = getattr(place, owner)
        except (ImportError, AttributeError) as error:
            raise PatchError(
                f"{self.target}: not found ({error}); this patch was written for {self.versions}"
            ) from error
        return place, name
