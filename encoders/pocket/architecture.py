"""The pocket VLM's shape: a Qwen2.5-VL whose text side is SmolLM2-135M and whose vision tower is small."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import Qwen2_5_VLConfig

PATCH_SIZE = 14  # pixels
MERGE_SIZE = 2  # patches a visual token has along each side
TOKEN_PIXELS = PATCH_SIZE * MERGE_SIZE
HIDDEN_SIZE = 576

VISION_START, VISION_END, IMAGE_TOKEN, VIDEO_TOKEN = (
    3,
    4,
    5,
    6,
)  # ids that SmolLM2 keeps for code repositories
VISION_TOKENS = {
    VISION_START: "<|vision_start|>",
    VISION_END: "<|vision_end|>",
    IMAGE_TOKEN: "<|image_pad|>",
    VIDEO_TOKEN: "<|video_pad|>",
}
BOS_TOKEN, EOS_TOKEN = 1, 2  # <|im_start|>, <|im_end|>

# M-RoPE gives the first pairs of a head to time, the next to height, the last to width. Qwen's own shares would
# leave width with pairs too slow to tell seven columns apart; these give it wavelengths from 38 tokens on.
MROPE_SECTION = [2, 3, 27]

_TEXT = {
    "vocab_size": 49152,
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "hidden_act": "silu",
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "bos_token_id": BOS_TOKEN,
    "eos_token_id": EOS_TOKEN,
    "pad_token_id": EOS_TOKEN,
    "rope_parameters": {"rope_theta": 100000.0, "rope_type": "default", "mrope_section": MROPE_SECTION},
}
_VISION = {
    "depth": 5,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_heads": 4,
    "in_channels": 3,
    "patch_size": PATCH_SIZE,
    "spatial_merge_size": MERGE_SIZE,
    "temporal_patch_size": 2,
    "window_size": 112,
    "fullatt_block_indexes": [1, 3, 4],
    "out_hidden_size": HIDDEN_SIZE,
    "hidden_act": "silu",
}


def pocket_config() -> "Qwen2_5_VLConfig":
    """The configuration as transformers and vLLM read it."""
    from transformers import Qwen2_5_VLConfig

    return Qwen2_5_VLConfig(
        architectures=["Qwen2_5_VLForConditionalGeneration"],
        text_config=dict(_TEXT),
        vision_config=dict(_VISION),
        image_token_id=IMAGE_TOKEN,
        video_token_id=VIDEO_TOKEN,
        vision_start_token_id=VISION_START,
        vision_end_token_id=VISION_END,
        bos_token_id=BOS_TOKEN,
        eos_token_id=EOS_TOKEN,
        pad_token_id=EOS_TOKEN,
        tie_word_embeddings=True,
    )
