"""Puts the pocket VLM's checkpoint together: base weights, LoRA delta, vision tower, processor."""

from pathlib import Path
from typing import TYPE_CHECKING

from mmspec.encoders.pocket.architecture import pocket_config
from mmspec.encoders.pocket.base import load_language_model
from mmspec.encoders.pocket.tokenizer import save_processor

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import Qwen2_5_VLForConditionalGeneration

TOWER = Path(__file__).with_name("tower.safetensors")
LORA = Path(__file__).with_name("lora.safetensors")


def assemble(folder: Path) -> None:
    """Writes the whole checkpoint in bfloat16 (about 285 MB) into an empty folder."""
    from transformers import GenerationConfig

    from mmspec.encoders.pocket.architecture import BOS_TOKEN, EOS_TOKEN

    model = assemble_model()
    model.generation_config = GenerationConfig(
        bos_token_id=BOS_TOKEN, eos_token_id=EOS_TOKEN, pad_token_id=EOS_TOKEN
    )
    model.save_pretrained(folder)
    save_processor(folder)


def assemble_model(
    tower: "dict[str, Tensor] | None" = None, lora: "dict[str, Tensor] | None" = None
) -> "Qwen2_5_VLForConditionalGeneration":
    """The model in bfloat16, from the shipped weights or from those given."""
    import torch
    from safetensors.torch import load_file
    from transformers import Qwen2_5_VLForConditionalGeneration

    tower = load_file(TOWER) if tower is None else tower
    lora = load_file(LORA) if lora is None else lora
    weights = {
        f"model.language_model.{k}": v
        for k, v in _merged(load_language_model().model.state_dict(), lora).items()
    }
    weights |= {f"model.visual.{name}": weight for name, weight in tower.items()}
    model = Qwen2_5_VLForConditionalGeneration(pocket_config())
    missing, unexpected = model.load_state_dict(weights, strict=False)
    biases = [name for name in missing if name.endswith("_proj.bias") and "language_model" in name]
    if unexpected or set(missing) - set(biases) - {"lm_head.weight"}:
        raise ValueError(f"weights do not fit: missing {missing}, unexpected {unexpected}")
    for name in biases:  # Qwen2's attention has biases, SmolLM2's has none
        torch.nn.init.zeros_(model.get_parameter(name))
    model.tie_weights()
    return model.to(torch.bfloat16)


def _merged(weights: "dict[str, Tensor]", lora: "dict[str, Tensor]") -> "dict[str, Tensor]":
    """Base weights with `B @ A` added where the delta has a pair; the scale is already in B."""
    merged = dict(weights)
    for name in lora:
        if name.endswith(".A"):
            module = name.removesuffix(".A")
            delta = lora[f"{module}.B"].float() @ lora[name].float()
            merged[f"{module}.weight"] = weights[f"{module}.weight"] + delta
    return merged
