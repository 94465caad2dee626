"""Asks a server for an answer with its statistics, streamed or not."""

import json
import urllib.request
from typing import Any


def post(url: str, body: dict[str, Any]) -> bytes:
    """The raw body of a chat completion."""
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        data: bytes = answer.read()
    return data


def chunks(stream: bytes) -> list[dict[str, Any]]:
    """The chunks of a stream, which must end as it should."""
    *events, end = [event for event in stream.decode().split("\n\n") if event]
    assert end == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


def text(parts: list[dict[str, Any]]) -> str:
    """The answer that a stream's chunks make up."""
    return "".join(choice["delta"].get("content") or "" for part in parts for choice in part["choices"])
