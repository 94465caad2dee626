"""The pocket VLM's tokenizer and processor: SmolLM2's own, four unused tokens renamed to the vision tokens."""

from pathlib import Path
from typing import TYPE_CHECKING

from mmspec.encoders.pocket.architecture import EOS_TOKEN, IMAGE_TOKEN, VISION_TOKENS
from mmspec.encoders.pocket.base import load_tokenizer
from mmspec.encoders.pocket.scenes import PICTURE_SIZE

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Pictures go ahead of the text of their message, wherever the client put them: the model was trained so.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}"
    "{% if part.type in ('image', 'image_url') or 'image' in part %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% endif %}{% endfor %}"
    "{% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}"
    "{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def save_processor(folder: Path, smallest: int = PICTURE_SIZE, largest: int = PICTURE_SIZE) -> None:
    """Writes tokenizer, image processor and chat template as transformers and vLLM read them.

    Args:
        smallest, largest: sides of squares with the areas, in pixels, that pictures are scaled into; equal ones make
            every picture as many tokens.
    """
    from transformers import Qwen2_5_VLProcessor, Qwen2VLImageProcessor, Qwen2VLVideoProcessor

    size = {"shortest_edge": smallest**2, "longest_edge": largest**2}
    Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=size),
        video_processor=Qwen2VLVideoProcessor(size=size),
        tokenizer=_with_vision_tokens(),
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(folder)


def _with_vision_tokens() -> "PreTrainedTokenizerBase":
    import json

    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    base = load_tokenizer()
    description = json.loads(base.backend_tokenizer.to_str())
    names = {base.convert_ids_to_tokens(token): name for token, name in VISION_TOKENS.items()}
    vocabulary = description["model"]["vocab"]
    for old, new in names.items():
        vocabulary[new] = vocabulary.pop(old)
    for added in description["added_tokens"]:
        added["content"] = names.get(added["content"], added["content"])
    description["added_tokens"] += [
        _special(token, name)
        for token, name in VISION_TOKENS.items()
        if all(added["id"] != token for added in description["added_tokens"])
    ]
    end = base.convert_ids_to_tokens(EOS_TOKEN)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(description)),
        bos_token="<|im_start|>",
        eos_token=end,
        pad_token=end,
        additional_special_tokens=list(VISION_TOKENS.values()),
        model_max_length=8192,
        clean_up_tokenization_spaces=False,
    )
    if tokenizer.convert_tokens_to_ids("<|image_pad|>") != IMAGE_TOKEN:
        raise ValueError("the image token did not keep its place in the vocabulary")
    return tokenizer


def _special(token: int, name: str) -> dict[str, object]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": token, "content": name, **flags}
