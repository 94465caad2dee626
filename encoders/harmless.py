"""Marks functions, for `LLM.apply_model` and `collective_rpc`, that leave the weights alone: the cache goes on."""

from collections.abc import Callable
from typing import Any, TypeVar

_MARK = "mmspec_leaves_weights_alone"
Function = TypeVar("Function", bound=Callable[..., Any])


def leaves_weights_alone(function: Function) -> Function:
    """A decorator. It does not reach workers in other processes, nor has to: the engine's process asks."""
    setattr(function, _MARK, True)
    return function


def is_harmless(function: Any) -> bool:
    return bool(getattr(function, _MARK, False))
