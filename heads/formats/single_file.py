"""The older kinds of head: one layer called `midlayer`, the settings of layer and head in one flat config.json."""

from collections.abc import Collection, Mapping
from typing import Any

# What LlamaConfig knows of the settings in a flat configuration.
_LAYER_KEYS = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "hidden_act", "max_position_embeddings", "initializer_range", "rms_norm_eps",
    "attention_bias", "attention_dropout", "mlp_bias",
    "pad_token_id", "bos_token_id", "eos_token_id", "num_aux_hidden_states", "quantization_config",
)  # fmt: skip
_HEAD_KEYS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
# LlamaConfig's own values, which vLLM takes for what a flat configuration leaves out.
_DEFAULTS: dict[str, Any] = {"num_hidden_layers": 1, "hidden_act": "silu", "rms_norm_eps": 1e-6}


def is_single_file(config: Mapping[str, Any], tensors: Collection[str]) -> bool:
    """Whether this is an EAGLE-3 head that is not in speculators' format."""
    names = [str(name) for name in config.get("architectures") or []]
    if any(name.startswith("Eagle3") or name.endswith("Eagle3") for name in names):
        return True
    # EAGLE's own checkpoints say LlamaForCausalLM, and vLLM puts Eagle3 before it.
    return "fc.weight" in tensors and any(name.startswith("midlayer.") or name == "d2t" for name in tensors)


def speculators_name(name: str) -> str:
    """A tensor's name in speculators' format."""
    return name.replace("midlayer.", "layers.0.", 1)


def speculators_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration in speculators' form: what vLLM makes of the flat one, said in full."""
    nested = config.get("eagle_config") or {}
    layer = {name: config[name] for name in _LAYER_KEYS if config.get(name) is not None}
    named = nested.get("eagle_aux_hidden_state_layer_ids")
    layer_ids = config.get("eagle_aux_hidden_state_layer_ids") or named
    if named and len(named) != 3:  # vLLM counts those named here, and otherwise takes three
        layer["num_aux_hidden_states"] = len(named)
    flags = {name: bool(config.get(name, nested.get(name, False))) for name in _HEAD_KEYS}
    return {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "transformer_layer_config": {
            "model_type": _layer_type(config),
            **_DEFAULTS,
            **layer,
            "rope_parameters": _rope(config),
        },
        "draft_vocab_size": config.get("draft_vocab_size") or config.get("vocab_size"),
        "target_hidden_size": config.get("target_hidden_size"),
        "eagle_aux_hidden_state_layer_ids": list(layer_ids) if layer_ids else None,
        **flags,
        **({"mmspec": config["mmspec"]} if "mmspec" in config else {}),
    }


def _layer_type(config: Mapping[str, Any]) -> str:
    """Of the decoder layers: vLLM chooses them by the architecture's name, most of which have Llama layers."""
    name = next(iter(config.get("architectures") or []), "")
    if name in ("Eagle3Qwen3ForCausalLM", "Qwen3ForCausalLM"):
        return "qwen3"
    return str(config.get("model_type")) if "Deepseek" in name else "llama"


def _rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """`rope_parameters`, whatever the age of the configuration; its type "mrope" is now "default" with sections."""
    rope: dict[str, Any] = {"rope_theta": config.get("rope_theta", 10000.0)}
    rope |= config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope["rope_type"] = rope.get("rope_type") or rope.pop("type", "default")
    rope.pop("type", None)
    return rope | ({"rope_type": "default"} if rope["rope_type"] == "mrope" else {})
