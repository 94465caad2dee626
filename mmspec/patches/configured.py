"""Whether an engine asked for mmspec: without that a patch must let everything pass."""

from typing import Any


def is_configured(additional_config: Any) -> bool:
    """Whether vLLM's `additional_config` holds options of mmspec, if only empty ones."""
    return isinstance(additional_config, dict) and "mmspec" in additional_config
