"""Whether an engine asked for mmspec, or for a part of it: without that a patch must let everything pass."""

from typing import Any


def is_configured(additional_config: Any) -> bool:
    """Whether vLLM's `additional_config` holds options of mmspec, if only empty ones."""
    return isinstance(additional_config, dict) and "mmspec" in additional_config


def is_pruning(additional_config: Any) -> bool:
    """Whether an engine asked for FastV."""
    return is_configured(additional_config) and additional_config["mmspec"].get("fastv") is not None


def caches_features(additional_config: Any) -> bool:
    """Whether the engine asked for the vision-feature cache."""
    return is_configured(additional_config) and additional_config["mmspec"].get("encoder_cache") is not None
