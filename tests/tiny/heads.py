"""Random EAGLE-3 heads for the tiny targets, in vLLM's own format and in speculators'."""

import json
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file

from tests.tiny.targets import HIDDEN, LAYERS, MAX_LENGTH
from tests.tiny.tokenizer import build_tokenizer, said_tokens
from tests.tiny.weights import random_weight

AUX_LAYERS = [2, LAYERS // 2, LAYERS - 3]  # vLLM's default for a target of this depth
Layout = Literal["vllm", "speculators"]


def build_eagle3_head(
    folder: Path, *, layout: Layout = "vllm", draft_vocab_size: int = 24, seed: int = 0
) -> None:
    """Writes a one-layer head whose reduced vocabulary holds all that a tiny target says, and more.

    Args:
        layout: `vllm` is the original EAGLE-3 naming (`midlayer.…`, `LlamaForCausalLMEagle3`);
            `speculators` names the layer `layers.0` and nests its configuration.
        draft_vocab_size: how many of the target's tokens the head can propose.
    """
    vocabulary = len(build_tokenizer())
    others = [token for token in range(100, vocabulary) if token not in said_tokens()]
    tokens = torch.tensor(sorted(said_tokens() + others[: draft_vocab_size - len(said_tokens())]))
    weights = _random_head(
        layer="midlayer" if layout == "vllm" else "layers.0", rows=draft_vocab_size, seed=seed
    )
    weights["d2t"] = tokens - torch.arange(draft_vocab_size)
    weights["t2d"] = torch.zeros(vocabulary, dtype=torch.bool).index_fill(0, tokens, True)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = _vllm_config if layout == "vllm" else _speculators_config
    (folder / "config.json").write_text(json.dumps(config(vocabulary, draft_vocab_size), indent=2))


def _random_head(*, layer: str, rows: int, seed: int) -> dict[str, torch.Tensor]:
    inner, heads, head_dim = 2 * HIDDEN, 2, 32
    shapes = {
        "fc.weight": (HIDDEN, HIDDEN * len(AUX_LAYERS)),
        f"{layer}.input_layernorm.weight": (HIDDEN,),
        f"{layer}.hidden_norm.weight": (HIDDEN,),
        f"{layer}.self_attn.q_proj.weight": (heads * head_dim, 2 * HIDDEN),
        f"{layer}.self_attn.k_proj.weight": (head_dim, 2 * HIDDEN),
        f"{layer}.self_attn.v_proj.weight": (head_dim, 2 * HIDDEN),
        f"{layer}.self_attn.o_proj.weight": (HIDDEN, heads * head_dim),
        f"{layer}.post_attention_layernorm.weight": (HIDDEN,),
        f"{layer}.mlp.gate_proj.weight": (inner, HIDDEN),
        f"{layer}.mlp.up_proj.weight": (inner, HIDDEN),
        f"{layer}.mlp.down_proj.weight": (HIDDEN, inner),
        "norm.weight": (HIDDEN,),
        "lm_head.weight": (rows, HIDDEN),
    }
    return {name: random_weight(f"head.{name}", torch.Size(shape), seed) for name, shape in shapes.items()}


def _layer_config(vocabulary: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": MAX_LENGTH,
        "vocab_size": vocabulary,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }


def _vllm_config(vocabulary: int, draft_vocabulary: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        **_layer_config(vocabulary),
        "draft_vocab_size": draft_vocabulary,
        "eagle_aux_hidden_state_layer_ids": AUX_LAYERS,
    }


def _speculators_config(vocabulary: int, draft_vocabulary: int) -> dict[str, Any]:
    return {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.9.0",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"name_or_path": "", "architectures": []},
        },
        "transformer_layer_config": _layer_config(vocabulary),
        "draft_vocab_size": draft_vocabulary,
        "eagle_aux_hidden_state_layer_ids": AUX_LAYERS,
        "norm_before_residual": False,
        "torch_dtype": "float32",
    }
