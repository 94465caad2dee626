"""Lets an engine start in a process that has used numba, such as a second engine on a CPU."""

import functools
import sys
from collections.abc import Callable
from typing import Any

from mmspec.compat import SUPPORTED
from mmspec.patches.patch import Patch


def _wrap(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _rebind_kernels(overrides: Any) -> Any:
        # No kernel of vLLM lives there, so the search loses nothing.
        hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("llvmlite.")}
        try:
            return original(overrides)
        finally:
            sys.modules.update(hidden)

    return _rebind_kernels


SEARCH_WITHOUT_LLVMLITE = Patch(
    target="vllm.triton_utils.dispatcher:_rebind_kernels",
    parameters=("overrides",),
    wrap=_wrap,
    why="on a CPU vLLM searches all loaded modules for its kernels and dies at llvmlite's library object, "
    "whose `__dict__` is no dict; n-gram drafting loads llvmlite, so a second engine fails to start",
    upstream="none known",
    versions=SUPPORTED,
    remove_when="the search skips objects whose `vars()` is not a dict",
)
