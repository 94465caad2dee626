"""Serving heads that see: draft architectures that the plugin registers with vLLM, for heads of mmspec only."""

import functools
from collections.abc import Callable
from typing import Any

_HOME = "mmspec.heads.serving.model"
# By what a head's configuration says of its vision; the names tell vLLM that these are EAGLE-3 heads.
ARCHITECTURES = {
    "features": "Eagle3SeeingLlamaForCausalLM",
    "global": "Eagle3SummarisingLlamaForCausalLM",
}
_CLASSES = {
    "features": f"{_HOME}:SeeingEagle3LlamaForCausalLM",
    "global": f"{_HOME}:SummarisingEagle3LlamaForCausalLM",
}

_Updater = Callable[..., None]


def name_architectures() -> None:
    """Tells vLLM where our classes are; for when its registry is imported, which does not import them."""
    from vllm.model_executor.models.registry import ModelRegistry

    for vision, architecture in ARCHITECTURES.items():
        ModelRegistry.register_model(architecture, _CLASSES[vision])


def choose_architectures() -> None:
    """Makes heads whose configuration says that they see load with our classes; others load as ever."""
    from vllm.transformers_utils.configs.speculators.algos import SUPPORTED_SPECULATORS_TYPES

    SUPPORTED_SPECULATORS_TYPES["eagle3"] = _with_vision(SUPPORTED_SPECULATORS_TYPES["eagle3"])


# What to do once in every process, each right after the import of a module of vLLM.
AFTER_IMPORT: dict[str, Callable[[], None]] = {
    "vllm.model_executor.models.registry": name_architectures,
    "vllm.transformers_utils.configs.speculators.algos": choose_architectures,
}


def _with_vision(stock: _Updater) -> _Updater:
    @functools.wraps(stock)
    def update(config_dict: dict[str, Any], pre_trained_config: dict[str, Any]) -> None:
        stock(config_dict=config_dict, pre_trained_config=pre_trained_config)
        ours = config_dict.get("mmspec")
        vision = ours.get("vision", "text") if isinstance(ours, dict) else "text"
        if vision in ARCHITECTURES:
            pre_trained_config["architectures"] = [ARCHITECTURES[vision]]
        if isinstance(ours, dict) and vision == "global":
            pre_trained_config["mmspec_summary_size"] = ours["summary_size"]

    return update
