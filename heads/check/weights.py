"""The head by itself: every tensor that its configuration promises, in the promised shape, and no other.

vLLM 0.32 does not notice a missing tensor of an EAGLE-3 head and drafts with whatever is in memory.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from mmspec.heads.check.mismatch import Mismatch
from mmspec.heads.config import VISION_WEIGHTS
from mmspec.heads.formats.head import Head, HeadFormat
from mmspec.heads.formats.tensors import starts_with_nan

Shape = tuple[int, ...]

_FLOATS = {"F32", "BF16", "F16", "F64"}
# vLLM passes these over while loading.
_IGNORED = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached", "t2d")
_ASPECT = "weights"
_FROM_TARGET = ("embed_tokens.weight", "lm_head.weight")
_AGAIN = "save or convert the head again"
_LAYER_TYPES = ("llama", "qwen3")
# What vLLM reads from transformer_layer_config as it stands, without the defaults of a model's own class.
_LAYER_KEYS = ("rms_norm_eps", "hidden_act")


def check_weights(head: Head) -> Iterator[Mismatch]:
    """Tensors that are missing, renamed, unknown or of another shape, and settings that vLLM cannot do without."""
    yield from _check_settings(head)
    if (kind := head.layer.get("model_type", "llama")) not in _LAYER_TYPES:
        # vLLM also has single-file heads with layers of DeepSeek.
        found = f"the head has layers of type {kind}, and only {' and '.join(_LAYER_TYPES)} are known here"
        fatal = head.format is HeadFormat.SPECULATORS
        yield Mismatch(_ASPECT, found, "train a head of one of these types", fatal=fatal)
        return
    if head.quantised:
        found = "the head is quantised, so names and shapes of its tensors were not compared"
        yield Mismatch(_ASPECT, found, "check the head that it was made from", fatal=False)
        return
    expected = expected_shapes(head)
    unknown = [name for name in head.tensors if not _is_known(name, expected)]
    for name, shape in expected.items():
        if name in head.tensors:
            yield from _check_tensor(head, name, shape)
        elif name not in _optional(head):
            renamed = _renamed(name, unknown)
            unknown = [other for other in unknown if other != renamed]
            yield _missing(name, renamed)
    for name in unknown:
        found = f"{name} belongs to no EAGLE-3 head that vLLM knows"
        yield Mismatch(_ASPECT, found, f"leave it out: {_AGAIN}")


def expected_shapes(head: Head) -> dict[str, Shape]:
    """Name and shape of every tensor that such a head may have."""
    layer, hidden = head.layer, int(head.layer["hidden_size"])
    states = head.aux_states * int(head.config.get("target_hidden_size") or hidden)
    shapes: dict[str, Shape] = {
        "fc.weight": (hidden, states),
        "norm.weight": (hidden,),
        "lm_head.weight": (head.config["draft_vocab_size"], hidden),
        "embed_tokens.weight": (layer["vocab_size"], hidden),
    }
    for index in range(layer["num_hidden_layers"]):
        shapes |= _layer_shapes(layer, index)
    if head.config.get("norm_before_fc"):
        shapes["input_norm.weight"] = (states,)
    if head.config.get("fc_norm"):
        shapes |= {
            f"fc_norm.{index}.weight": (states // head.aux_states,) for index in range(head.aux_states)
        }
    if head.config["draft_vocab_size"] != layer["vocab_size"]:
        shapes["d2t"] = (head.config["draft_vocab_size"],)
    if (inner := head.settings.summary_size) and head.settings.vision == "global":
        sizes = {"score": (1, hidden), "up": (inner, hidden), "down": (hidden, inner)}
        shapes |= {f"{VISION_WEIGHTS}{name}.weight": shape for name, shape in sizes.items()}
    return shapes


def head_dim(layer: dict[str, Any]) -> int:
    """Width of an attention head."""
    return int(layer.get("head_dim") or layer["hidden_size"] // layer["num_attention_heads"])


def key_value_heads(layer: dict[str, Any]) -> int:
    return int(layer.get("num_key_value_heads") or layer["num_attention_heads"])


def _layer_shapes(layer: dict[str, Any], index: int) -> dict[str, Shape]:
    """One decoder layer; the first reads the token's embedding beside the hidden state."""
    hidden, inner, width = layer["hidden_size"], layer["intermediate_size"], head_dim(layer)
    read = hidden if index else 2 * hidden
    queries, keys = layer["num_attention_heads"] * width, key_value_heads(layer) * width
    shapes: dict[str, Shape] = {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, read),
        "self_attn.k_proj.weight": (keys, read),
        "self_attn.v_proj.weight": (keys, read),
        "self_attn.o_proj.weight": (hidden, queries),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    if index == 0:
        shapes["hidden_norm.weight"] = (hidden,)
    if layer.get("model_type") == "qwen3":
        shapes |= {"self_attn.q_norm.weight": (width,), "self_attn.k_norm.weight": (width,)}
    for flag, parts in (("attention_bias", "self_attn."), ("mlp_bias", "mlp.")):
        if layer.get(flag):
            biases = {
                name: shape for name, shape in shapes.items() if name.startswith(parts) and "proj" in name
            }
            shapes |= {name.replace(".weight", ".bias"): shape[:1] for name, shape in biases.items()}
    return {f"layers.{index}.{name}": shape for name, shape in shapes.items()}


def _check_settings(head: Head) -> Iterator[Mismatch]:
    for name in _LAYER_KEYS:
        if head.layer.get(name) is None:
            found = f"transformer_layer_config has no {name}, which vLLM reads from there"
            yield Mismatch("settings", found, f"add it to config.json, or {_AGAIN}")
    if head.layer.get("hidden_act") not in (None, "silu"):
        found = f"hidden_act is {head.layer['hidden_act']!r}, and vLLM's draft layers know silu alone"
        yield Mismatch("settings", found, "train a head with silu")
    if head.format is HeadFormat.SPECULATORS and not head.config.get("speculators_config"):
        found = "config.json has no speculators_config, by which vLLM knows the format"
        yield Mismatch("settings", found, "mmspec head convert adds it")
    if head.settings.vision == "global" and not head.settings.summary_size:
        found = "mmspec.vision is global, and mmspec.summary_size does not say how wide its summary is"
        yield Mismatch("settings", found, "set it to the rows of vision.up.weight")
    if "norm_before_residual" not in head.config:
        found = "norm_before_residual is not in config.json; vLLM takes true for it and speculators false"
        yield Mismatch("settings", found, "write down which of them the head was trained with")


def _check_tensor(head: Head, name: str, shape: Shape) -> Iterator[Mismatch]:
    header = head.tensors[name]
    if header.shape != shape:
        found = f"{name} has the shape {list(header.shape)}, and config.json asks for {list(shape)}"
        mend = f"{_AGAIN}, or give it the config.json that it was saved with"
        if name == "fc.weight":
            found += f", {head.aux_states} hidden states of the target side by side"
            mend = "set eagle_aux_hidden_state_layer_ids to the layers that it was trained with"
        yield Mismatch(_ASPECT, found, mend)
    elif name != "d2t" and header.dtype not in _FLOATS:
        found = f"{name} is stored as {header.dtype}, and config.json has no quantization_config"
        yield Mismatch("dtype", found, "save the head in float32, bfloat16 or float16")
    elif name in _FROM_TARGET and starts_with_nan(head.folder, name):
        found = f"{name} is not a number, which is how speculators saves what was never loaded"
        yield Mismatch(_ASPECT, found, "mmspec head convert leaves it out")


def _renamed(name: str, unknown: list[str]) -> str | None:
    """The unknown tensor that may be the missing one."""
    end = name.split(".", 2)[-1] if name.startswith("layers.") else name
    found = [other for other in unknown if other.endswith(end)] or get_close_matches(name, unknown, n=1)
    return found[0] if found else None


def _missing(name: str, renamed: str | None) -> Mismatch:
    if name == "d2t":
        found = "d2t is missing, so every drafted token would be taken for another"
        return Mismatch("vocabulary", found, "mmspec head convert makes it from t2d, where that is there")
    if renamed:
        return Mismatch(_ASPECT, f"{name} is missing, and {renamed} may be it", f"rename it, or {_AGAIN}")
    return Mismatch(_ASPECT, f"{name} is missing", _AGAIN)


def _is_known(name: str, expected: dict[str, Shape]) -> bool:
    return name in expected or name.endswith(_IGNORED)


def _optional(head: Head) -> set[str]:
    """Tensors that vLLM takes from the target where a head has none: rows must be as wide, and all there."""
    same_width = head.config.get("target_hidden_size") in (None, head.layer["hidden_size"])
    whole = head.config["draft_vocab_size"] == head.layer["vocab_size"]
    return ({"embed_tokens.weight"} if same_width else set()) | (
        {"lm_head.weight"} if same_width and whole else set()
    )
