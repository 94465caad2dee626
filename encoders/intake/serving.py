"""Brings the intake into vLLM, in a process that is about to start an engine that asks for it."""

import logging
from typing import Any

from mmspec.encoders.intake.settings import engine_settings
from mmspec.errors import MmspecError

_STOCK_CONNECTOR, _STOCK_RENDERER = "http", "hf"
_RENDERER = ("mmspec.encoders.intake.renderer", "IntakeRenderer")

_log = logging.getLogger("vllm.plugins.mmspec")


def install() -> None:
    """Puts our connector and renderer in the place of vLLM's stock ones, in vLLM's registries; once is enough.

    Their names stay, so that other engines of this process find them: for those, ours pass everything through.
    Naming a connector in `VLLM_MEDIA_CONNECTOR` would reach into engines that do not use mmspec, here and in
    processes started from here, and vLLM does not look at the variable again once an engine runs.

    Raises:
        MmspecError: another connector or renderer is in use already.
    """
    import vllm.envs as envs
    from vllm.multimodal.media import MEDIA_CONNECTOR_REGISTRY, MediaConnector
    from vllm.renderers.registry import RENDERER_REGISTRY

    from mmspec.encoders.intake.connector import IntakeConnector

    named = envs.VLLM_MEDIA_CONNECTOR
    if named != _STOCK_CONNECTOR:
        raise _occupied(f"VLLM_MEDIA_CONNECTOR={named!r} names another media connector; unset it")
    connector = MEDIA_CONNECTOR_REGISTRY.name2class[_STOCK_CONNECTOR]
    if connector not in (MediaConnector, IntakeConnector):
        raise _occupied(f"{connector.__module__} has replaced vLLM's media connector; leave that plugin out")
    MEDIA_CONNECTOR_REGISTRY.register(_STOCK_CONNECTOR)(IntakeConnector)
    renderers = RENDERER_REGISTRY.renderers
    if renderers[_STOCK_RENDERER] not in (("vllm.renderers.hf", "HfRenderer"), _RENDERER):
        raise _occupied(
            f"{renderers[_STOCK_RENDERER][0]} has replaced vLLM's renderer; leave that plugin out"
        )
    renderers[_STOCK_RENDERER] = _RENDERER


def warn_where_unused(vllm_config: Any) -> None:
    """Says so when the engine is configured for the intake and its model's prompts are made by another renderer."""
    if engine_settings(getattr(vllm_config, "additional_config", None)) is None:
        return
    from vllm.tokenizers.registry import tokenizer_args_from_config

    mode = tokenizer_args_from_config(vllm_config.model_config)[0]
    if mode != _STOCK_RENDERER:
        _log.warning(
            "mmspec: the intake is off, because vLLM renders this model's prompts in its own way: %s", mode
        )


def _occupied(problem: str) -> MmspecError:
    return MmspecError(f"intake: {problem}, or take intake out of the configuration")
