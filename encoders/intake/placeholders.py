"""Text that a user typed stays text, also where it spells a model's placeholder for a picture."""

from collections.abc import Iterable, Iterator
from typing import Any

# Breaks a special token for every tokenizer, and shows nothing. Dropping it again after the chat template would
# need a tokenizer that splits special tokens in some parts of a prompt only, which none does.
_BREAK = "\N{ZERO WIDTH SPACE}"

# Fields of configurations of the Qwen-VL and LLaVA families.
_TOKEN_FIELDS = tuple(
    f"{kind}_{suffix}"
    for kind in ("image", "video", "vision_start", "vision_end")
    for suffix in ("token_id", "token_index")
)


def placeholder_texts(hf_config: Any, tokenizer: Any) -> list[str]:
    """What a model's chat template writes where a picture or video goes, token by token."""
    ids = {getattr(hf_config, name, None) for name in _TOKEN_FIELDS}
    texts = tokenizer.convert_ids_to_tokens(sorted(id_ for id_ in ids if isinstance(id_, int) and id_ >= 0))
    return [text for text in texts if isinstance(text, str) and len(text) > 1]


def keep_as_text(messages: list[Any], texts: Iterable[str], typed: list[str]) -> list[Any]:
    """Copies of the messages with every placeholder in their text broken; those found are added to `typed`."""
    keeper = _Keeper(list(texts), typed)
    return [keeper.message(message) for message in messages]


class _Keeper:
    def __init__(self, texts: list[str], typed: list[str]) -> None:
        self._texts = texts
        self._typed = typed

    def message(self, message: Any) -> Any:
        if not isinstance(message, dict):
            return message
        content = message.get("content")
        if isinstance(content, str):
            kept: Any = self._text(content)
        elif content is None:
            return message
        else:
            kept = [self._part(part) for part in content]
        return {**message, "content": kept}

    def _part(self, part: Any) -> Any:
        if isinstance(part, str):
            return self._text(part)
        if isinstance(part, dict):
            return {**part, **dict(self._fields(part))}
        return part

    def _fields(self, part: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for name in ("text", "refusal", "thinking"):
            if isinstance(part.get(name), str):
                yield name, self._text(part[name])

    def _text(self, text: str) -> str:
        for placeholder in self._texts:
            if placeholder in text:
                text = text.replace(placeholder, f"{placeholder[0]}{_BREAK}{placeholder[1:]}")
                if placeholder not in self._typed:
                    self._typed.append(placeholder)
        return text
