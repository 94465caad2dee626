"""A checkpoint with the vision tower of Qwen2.5-VL-7B, its weights random, behind a tiny language model.

What a picture costs depends on the tower's size and not on what its weights say.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from mmspec.encoders.pocket.checkpoint import cache_folder

if TYPE_CHECKING:
    from transformers import Qwen2_5_VLConfig

LARGEST = 1344  # pixels of a side
_SMALLEST = 56
_WIDTH = 3584


def build(folder: Path | None = None) -> Path:
    """Builds the checkpoint (1.8 GB in bfloat16) in the cache folder, or finds it there."""
    import torch
    from transformers import Qwen2_5_VLForConditionalGeneration

    from mmspec.encoders.pocket.tokenizer import save_processor

    folder = folder or cache_folder() / "large-tower"
    if (folder / "preprocessor_config.json").exists() or (folder / "processor_config.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = Qwen2_5_VLForConditionalGeneration(_config())
    finally:
        torch.set_default_dtype(before)
    model.save_pretrained(folder)
    save_processor(folder, _SMALLEST, LARGEST)  # last: it tells that all is there
    return folder


def _config() -> "Qwen2_5_VLConfig":
    """The pocket VLM's, with Qwen2.5-VL-7B's tower and two layers as wide as that asks for."""
    from transformers import Qwen2_5_VLConfig

    from mmspec.encoders.pocket.architecture import pocket_config

    config = pocket_config().to_dict()
    config["text_config"] |= {
        "hidden_size": _WIDTH,
        "intermediate_size": 1024,
        "num_hidden_layers": 2,
        "layer_types": ["full_attention"] * 2,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "head_dim": 128,
    }
    config["text_config"]["rope_parameters"] = {
        "rope_theta": 1000000.0,
        "rope_type": "default",
        "mrope_section": [16, 24, 24],
    }
    config["vision_config"] |= {
        "depth": 32,
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "num_heads": 16,
        "fullatt_block_indexes": [7, 15, 23, 31],
        "out_hidden_size": _WIDTH,
    }
    return Qwen2_5_VLConfig(**config)
