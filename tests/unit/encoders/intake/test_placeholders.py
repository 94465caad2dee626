"""A placeholder that a user typed stays text."""

from types import SimpleNamespace
from typing import Any

import pytest

from mmspec.encoders.intake.placeholders import keep_as_text, placeholder_texts
from tests.tiny.tokenizer import LLAVA_IMAGE, QWEN_IMAGE, build_tokenizer

BREAK = "\u200b"
PLACEHOLDERS = [QWEN_IMAGE, "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", LLAVA_IMAGE]


def configuration(**tokens: str) -> Any:
    tokenizer = build_tokenizer()
    return SimpleNamespace(**{name: tokenizer.convert_tokens_to_ids(token) for name, token in tokens.items()})


def test_a_models_placeholders_are_found_in_its_configuration() -> None:
    qwen = configuration(
        image_token_id=QWEN_IMAGE,
        video_token_id="<|video_pad|>",
        vision_start_token_id="<|vision_start|>",
        vision_end_token_id="<|vision_end|>",
    )
    llava = configuration(image_token_index=LLAVA_IMAGE)

    assert set(placeholder_texts(qwen, build_tokenizer())) == set(PLACEHOLDERS) - {LLAVA_IMAGE}
    assert placeholder_texts(llava, build_tokenizer()) == [LLAVA_IMAGE]
    assert placeholder_texts(SimpleNamespace(), build_tokenizer()) == []


@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
@pytest.mark.parametrize("text", ["{}", "What does {} mean?", "{}{} and {}"])
def test_the_tokenizer_finds_no_placeholder_and_every_letter(placeholder: str, text: str) -> None:
    tokenizer = build_tokenizer()
    typed = text.replace("{}", placeholder)

    (message,) = keep_as_text([{"role": "user", "content": typed}], PLACEHOLDERS, [])

    ids = tokenizer(message["content"], add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_tokens_to_ids(placeholder) not in ids
    assert tokenizer.decode(ids).replace(BREAK, "") == typed


def test_text_is_kept_wherever_it_is_and_the_rest_stays() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,<image>"}}
    messages = [
        {"role": "system", "content": "No <image> here."},
        {
            "role": "user",
            "content": [picture, "an <image>", {"type": "text", "text": "the <image>", "more": 1}],
        },
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "<image>?"}]},
    ]
    before = repr(messages)
    typed: list[str] = []

    kept = keep_as_text(messages, [LLAVA_IMAGE], typed)

    broken = f"<{BREAK}image>"
    assert kept[0]["content"] == f"No {broken} here."
    assert kept[1]["content"] == [
        picture,
        f"an {broken}",
        {"type": "text", "text": f"the {broken}", "more": 1},
    ]
    assert kept[2] == messages[2]
    assert kept[3]["content"] == [{"type": "thinking", "thinking": f"{broken}?"}]
    assert typed == [LLAVA_IMAGE]
    assert repr(messages) == before


def test_content_that_is_read_once_is_passed_on() -> None:
    """vLLM's server may hand over pydantic's iterators."""
    parts = iter([{"type": "text", "text": "an <image>"}])

    (message,) = keep_as_text([{"role": "user", "content": parts}], [LLAVA_IMAGE], [])

    assert message["content"] == [{"type": "text", "text": f"an <{BREAK}image>"}]


def test_other_text_is_the_same() -> None:
    messages = [{"role": "user", "content": "<|im_end|> < image> <|image|> ümläut 猫"}]

    assert keep_as_text(messages, PLACEHOLDERS, []) == messages
