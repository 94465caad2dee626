"""What a server with mmspec offers, for clients that adapt to it: `GET /mmspec`."""

from typing import Any

from mmspec import __version__
from mmspec.encoders.fastv.settings import engine_settings
from mmspec.patches.configured import caches_features

PATH = "/mmspec"


def offer(vllm_config: Any) -> dict[str, Any]:
    """What requests may ask of an engine.

    Args:
        vllm_config: the engine's.
    """
    drafting, fastv = vllm_config.speculative_config, engine_settings(vllm_config.additional_config)
    return {
        "version": __version__,
        "model_type": vllm_config.model_config.hf_config.model_type,
        "statistics": True,
        "draft": None if drafting is None else drafting.method,
        "num_speculative_tokens": None if drafting is None else drafting.num_speculative_tokens,
        "fastv": None
        if fastv is None
        else {"layer": fastv.layer, "keep": fastv.keep, "scores": fastv.scores},
        "encoder_cache": caches_features(vllm_config.additional_config),
    }
