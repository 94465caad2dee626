"""Prompts from JSONL: a conversation a line, `{"messages": […]}` in OpenAI's format.

Pictures are parts like `{"type": "image_url", "image_url": {"url": …}}` or `{"type": "image", "image": …}`; a field
`image` beside `messages` (one or a list) puts pictures ahead of the first user turn.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmspec.errors import MmspecError

PICTURE = "picture"
"""Type of a message part that names a picture by its field `picture`, after reading."""

_ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True)
class Conversation:
    """A line that can be asked. The key is that of its content, so a prompts file may grow or be reordered."""

    key: str
    line: int  # from 1
    messages: list[dict[str, Any]]


@dataclass(frozen=True)
class Skipped:
    """A line that cannot be used, and why."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


def read_conversations(path: Path) -> Iterator[Conversation | Skipped]:
    """Every line that is not blank, streamed.

    Raises:
        MmspecError: the file cannot be read.
    """
    seen: Counter[str] = Counter()
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                if not text.strip():
                    continue
                digest = hashlib.sha256(text.strip()).hexdigest()[:16]
                seen[digest] += 1
                yield _read_line(text, number, f"{digest}-{seen[digest]}")
    except OSError as error:
        raise MmspecError(f"prompts {path}: cannot be read ({error.strerror}); give a JSONL file") from None


def _read_line(text: bytes, number: int, key: str) -> Conversation | Skipped:
    try:
        line = json.loads(text)
        if not isinstance(line, dict) or not isinstance(line.get("messages"), list):
            raise MmspecError('not an object with a list of "messages"')
        messages = [_message(message) for message in line["messages"]]
        _put_ahead(messages, line.get("image") or [])
        if not any(message["role"] == "user" for message in messages):
            raise MmspecError("no user turn")
    except MmspecError as error:
        return Skipped(number, str(error))
    except ValueError as error:
        return Skipped(number, f"not JSON ({error})")
    return Conversation(key, number, messages)


def _message(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise MmspecError(f"a message without one of the roles {', '.join(_ROLES)}")
    content = message.get("content")
    if content is None and message["role"] == "assistant":
        content = ""
    if isinstance(content, str):
        return {**message, "content": content}
    if not isinstance(content, list):
        raise MmspecError(f"content of a {message['role']} message is neither text nor a list of parts")
    return {**message, "content": [_part(part) for part in content]}


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, dict):
        if part.get("type", "text") == "text" and isinstance(part.get("text"), str):
            return {"type": "text", "text": part["text"]}
        if part.get("type") in ("image_url", "image", "input_image"):
            return _picture(part.get("image_url", part.get("image")))
    raise MmspecError(f"a part that is neither text nor a picture: {json.dumps(part)[:60]}")


def _picture(reference: Any) -> dict[str, Any]:
    if isinstance(reference, dict):
        reference = reference.get("url")
    if not isinstance(reference, str) or not reference:
        raise MmspecError("a picture without a path or URL")
    return {"type": PICTURE, "picture": reference}


def _put_ahead(messages: list[dict[str, Any]], pictures: Any) -> None:
    parts = [_picture(reference) for reference in (pictures if isinstance(pictures, list) else [pictures])]
    first = next((message for message in messages if message["role"] == "user"), None)
    if parts and first is not None:
        content = first["content"]
        texts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        first["content"] = [*parts, *texts]
