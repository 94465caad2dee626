"""Between the page's conversation and the messages that the model gets."""

import mimetypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmspec.errors import MmspecError
from mmspec.pictures import url_part

_NOTE = "mmspec-note"  # marks what the page itself has said

Message = dict[str, Any]


def user_turn(text: str, files: Sequence[str]) -> Message:
    """A question as the page shows it: its pictures first."""
    pictures: list[Message] = [{"path": path} for path in files]
    return {"role": "user", "content": [*pictures, *([_text(text)] if text else [])]}


def answer_turn(text: str) -> Message:
    return {"role": "assistant", "content": [_text(text)]}


def note(text: str) -> Message:
    """A remark of the page in place of an answer, which the model never sees."""
    return {"role": "assistant", "content": [_text(text)], "metadata": {"id": _NOTE}}


def is_note(message: Message) -> bool:
    return (message.get("metadata") or {}).get("id") == _NOTE


def to_messages(history: Sequence[Message], system: str = "") -> list[Message]:
    """The conversation for the model. Questions that were not answered, and the remarks on them, are left out.

    Raises:
        MmspecError: a picture's file is gone.
    """
    messages: list[Message] = [{"role": "system", "content": system.strip()}] if system.strip() else []
    for message in _answered(history):
        parts = [part for item in _items(message) if (part := _part(item))]
        if message["role"] == "assistant":
            messages.append({"role": "assistant", "content": "".join(part["text"] for part in parts)})
        elif parts:
            messages.append({"role": "user", "content": parts})
    return messages


def pictures(history: Sequence[Message]) -> list[str]:
    """Files of the pictures that the model gets with a conversation, in the order of the prompt."""
    return [path for message in _answered(history) for item in _items(message) if (path := _path(item))]


def last_question(history: Sequence[Message]) -> int | None:
    """Index of the question that was asked last; None before the first."""
    return next((i for i in range(len(history) - 1, -1, -1) if history[i]["role"] == "user"), None)


def question_of(message: Message) -> tuple[str, list[str]]:
    """Text and pictures of a question."""
    items = _items(message)
    text = "".join(item["text"] for item in items if item.get("type") == "text")
    return text, [path for item in items if (path := _path(item))]


def _answered(history: Sequence[Message]) -> list[Message]:
    """What the model is to see: no remarks of the page, and no questions that got such a remark for an answer."""
    following = [*history[1:], None]
    return [
        message
        for message, after in zip(history, following, strict=True)
        if not is_note(message) and not (message["role"] == "user" and after is not None and is_note(after))
    ]


def _items(message: Message) -> list[Any]:
    """The parts of a message, as Gradio gives them or as they are made here."""
    content = message["content"]
    return [_text(content)] if isinstance(content, str) else list(content)


def _text(text: str) -> Message:
    return {"type": "text", "text": text}


def _path(item: Message) -> str | None:
    found = (item.get("file") or item).get("path")
    return None if found is None else str(found)


def _part(item: Message) -> Message | None:
    """A part of an OpenAI message."""
    if (path := _path(item)) is not None:
        return _picture(Path(path))
    return _text(item["text"]) if item.get("text") else None


def _picture(path: Path) -> Message:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise MmspecError(
            f"The picture {path.name} cannot be read ({error.strerror}); add it again."
        ) from None
    return url_part(data, mimetypes.guess_type(path.name)[0] or "application/octet-stream")
