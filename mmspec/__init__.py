"""Speculative decoding for vision-language models on vLLM.

Importing this package imports neither torch nor vLLM: the names below load what they need when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmspec.config import DraftConfig, EncoderCacheConfig, FastVConfig, IntakeConfig, MmspecConfig
    from mmspec.engine_args import engine_kwargs
    from mmspec.errors import MmspecError
    from mmspec.llm import LLM

__version__ = "0.1.0"

_HOMES = {
    "LLM": "mmspec.llm",
    "DraftConfig": "mmspec.config",
    "EncoderCacheConfig": "mmspec.config",
    "FastVConfig": "mmspec.config",
    "IntakeConfig": "mmspec.config",
    "MmspecConfig": "mmspec.config",
    "engine_kwargs": "mmspec.engine_args",
    "MmspecError": "mmspec.errors",
}

__all__ = [
    "LLM",
    "DraftConfig",
    "EncoderCacheConfig",
    "FastVConfig",
    "IntakeConfig",
    "MmspecConfig",
    "MmspecError",
    "__version__",
    "engine_kwargs",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mmspec' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
