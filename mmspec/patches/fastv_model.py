"""Prepares a target for pruning when its weights are there, before its attention layers get their metadata builders."""

import functools
from collections.abc import Callable
from typing import Any

from mmspec.compat import SUPPORTED
from mmspec.patches.configured import is_pruning
from mmspec.patches.patch import Patch


def _wrap(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load_model(self: Any, vllm_config: Any, model_config: Any, prefix: str = "") -> Any:
        model = original(self, vllm_config, model_config, prefix)
        # A draft may come with a configuration of its own, made from the target's.
        if is_pruning(vllm_config.additional_config) and model_config.runner_type != "draft":
            from mmspec.encoders.fastv.pruner import install

            install(model, vllm_config)
        return model

    return load_model


PREPARE_TARGET = Patch(
    target="vllm.model_executor.model_loader.base_loader:BaseModelLoader.load_model",
    parameters=("self", "vllm_config", "model_config", "prefix"),
    wrap=_wrap,
    why="gives the layers behind FastV's layer K an attention backend with metadata of its own, and the target a "
    "forward pass that prunes; nothing is changed without `fastv` in the configuration",
    upstream="vLLM issues 3394, 20791, 45098 ask for FastV; none for a hook behind the loading of a model",
    versions=SUPPORTED,
    remove_when="vLLM tells plugins of a loaded model, or prunes by itself",
    lazy=True,
)
