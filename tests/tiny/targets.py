"""Tiny vision-language models with real architectures, each a whole Hugging Face checkpoint."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from tests.tiny.tokenizer import (
    LLAVA_CHAT_TEMPLATE,
    LLAVA_IMAGE,
    QWEN_CHAT_TEMPLATE,
    QWEN_IMAGE,
    build_tokenizer,
    said_tokens,
)
from tests.tiny.weights import confine, perturb, randomize

HIDDEN = 64
LAYERS = 8  # EAGLE-3's default layers 2, n/2 and n-3 are three different ones from seven layers on
MAX_LENGTH = 2048


def build_qwen2_5_vl(folder: Path) -> None:
    """Qwen2.5-VL: M-RoPE, windowed vision attention, pictures of 4 to 64 tokens (28 × 28 pixels each)."""
    from transformers import (
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
        Qwen2_5_VLProcessor,
        Qwen2VLImageProcessor,
        Qwen2VLVideoProcessor,
    )

    size = {"shortest_edge": 56 * 56, "longest_edge": 64 * 28 * 28}
    config = Qwen2_5_VLConfig(
        text_config=_text_config(mrope_section=[4, 6, 6], use_sliding_window=False),
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": HIDDEN,
            "fullatt_block_indexes": [1],
        },
        **_qwen_token_ids(),
    )
    processor = Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=size),
        video_processor=Qwen2VLVideoProcessor(size=size),
        tokenizer=build_tokenizer(),
        chat_template=QWEN_CHAT_TEMPLATE,
    )
    _save(Qwen2_5_VLForConditionalGeneration(config), processor, folder)


def build_qwen3_vl(folder: Path) -> None:
    """Qwen3-VL: interleaved M-RoPE, DeepStack into the first three layers, 32 × 32 pixels a token."""
    from transformers import (
        Qwen2VLImageProcessor,
        Qwen3VLConfig,
        Qwen3VLForConditionalGeneration,
        Qwen3VLProcessor,
        Qwen3VLVideoProcessor,
    )

    size = {"shortest_edge": 64 * 64, "longest_edge": 64 * 32 * 32}
    config = Qwen3VLConfig(
        text_config=_text_config(mrope_section=[6, 5, 5], mrope_interleaved=True, head_dim=32),
        vision_config={
            "depth": 4,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_heads": 2,
            "out_hidden_size": HIDDEN,
            "num_position_embeddings": 256,
            "deepstack_visual_indexes": [0, 1, 2],
        },
        **_qwen_token_ids(),
    )
    processor = Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(
            size=size, patch_size=16, image_mean=[0.5] * 3, image_std=[0.5] * 3
        ),
        video_processor=Qwen3VLVideoProcessor(size=size),
        tokenizer=build_tokenizer(),
        chat_template=QWEN_CHAT_TEMPLATE,
    )
    _save(Qwen3VLForConditionalGeneration(config), processor, folder)


def build_llava(folder: Path) -> None:
    """LLaVA: a CLIP tower, two-layer projector and Llama; every picture is 16 tokens."""
    from transformers import CLIPImageProcessor, LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor

    side, patch = 56, 14
    config = LlavaConfig(
        text_config=_text_config(model_type="llama", architectures=["LlamaForCausalLM"]),
        vision_config={
            "model_type": "clip_vision_model",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "image_size": side,
            "patch_size": patch,
            "projection_dim": 64,
        },
        image_token_index=_token_id(LLAVA_IMAGE),
        image_seq_length=(side // patch) ** 2,
    )
    processor = LlavaProcessor(
        image_processor=CLIPImageProcessor(
            size={"shortest_edge": side}, crop_size={"height": side, "width": side}
        ),
        tokenizer=build_tokenizer(),
        patch_size=patch,
        num_additional_image_tokens=1,
        vision_feature_select_strategy="default",
        chat_template=LLAVA_CHAT_TEMPLATE,
    )
    _save(LlavaForConditionalGeneration(config), processor, folder)
    # Transformers 5.19 leaves out a level that every LLaVA on the hub has, and that vLLM 0.32 asks for.
    _rename_weights(folder, "vision_tower.", "vision_tower.vision_model.")


def build_llama(folder: Path) -> None:
    """A text-only Llama: the families' language model with noise, so a draft that is right only sometimes."""
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(**_text_config()))
    tokenizer = build_tokenizer()
    tokenizer.save_pretrained(folder)
    _save(model, None, folder, noise=0.1)


TARGETS: dict[str, Callable[[Path], None]] = {
    "qwen2_5_vl": build_qwen2_5_vl,
    "qwen3_vl": build_qwen3_vl,
    "llava": build_llava,
}


def _text_config(**extra: Any) -> dict[str, Any]:
    rope = {key: extra.pop(key) for key in ("mrope_section", "mrope_interleaved") if key in extra}
    return {
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,  # the smallest that vLLM's CPU attention takes
        "vocab_size": len(build_tokenizer()),
        "max_position_embeddings": MAX_LENGTH,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, **rope},
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": build_tokenizer().eos_token_id,
        "pad_token_id": build_tokenizer().pad_token_id,
        **extra,
    }


def _token_id(token: str) -> int:
    return build_tokenizer().convert_tokens_to_ids(token)


def _qwen_token_ids() -> dict[str, int]:
    return {
        "image_token_id": _token_id(QWEN_IMAGE),
        "video_token_id": _token_id("<|video_pad|>"),
        "vision_start_token_id": _token_id("<|vision_start|>"),
        "vision_end_token_id": _token_id("<|vision_end|>"),
    }


def _save(model: Any, processor: Any, folder: Path, noise: float = 0.0) -> None:
    randomize(model)
    if noise:
        perturb(model, noise=noise)
    confine(model.get_output_embeddings(), said_tokens())
    model.generation_config.do_sample = False
    model.save_pretrained(folder)
    if processor is not None:
        processor.save_pretrained(folder)


def _rename_weights(folder: Path, prefix: str, replacement: str) -> None:
    weights = load_file(folder / "model.safetensors")
    renamed = {
        replacement + name.removeprefix(prefix) if name.startswith(prefix) else name: tensor
        for name, tensor in weights.items()
    }
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})
