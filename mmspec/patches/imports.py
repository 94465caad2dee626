"""Does something as soon as a module has been imported, without importing it."""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_waiting: dict[str, list[Callable[[], None]]] = {}


class _Watcher(MetaPathFinder):
    """Finds modules as Python does, and lets those that are waited for report their import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _waiting:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            for action in _waiting.pop(fullname, []):
                action()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_WATCHER = _Watcher()


def now_or_when_imported(module: str, action: Callable[[], None]) -> None:
    """Calls `action` once: at once if `module` is there, otherwise right after its first import."""
    if module in sys.modules:
        action()
    else:
        when_imported(module, action)


def when_imported(module: str, action: Callable[[], None]) -> None:
    """Calls `action` once, right after the first import of `module`, which must not be imported yet."""
    if _WATCHER not in sys.meta_path:
        sys.meta_path.insert(0, _WATCHER)
    _waiting.setdefault(module, []).append(action)
