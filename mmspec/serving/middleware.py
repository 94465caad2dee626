"""Puts the statistics that a request asked for into its response, streamed or not."""

import json
from typing import Any

from mmspec.asgi import HttpMiddleware, Message, Receive, Send
from mmspec.serving.offer import PATH, offer
from mmspec.serving.watch import Watch, watching

KEY = "mmspec"  # in the response

_END = b"data: [DONE]"
_DATA = b"data: {"
_JSON, _EVENTS = b"application/json", b"text/event-stream"


class Statistics(HttpMiddleware):
    """ASGI middleware: an object `mmspec` in a JSON response, a last chunk in a stream.

    Responses to requests that ask for nothing pass unchanged. `GET /mmspec` says what there is to ask for; like
    `/health` it needs no key.
    """

    async def respond(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["path"] == PATH and scope["method"] == "GET":
            await _answer(send, offer(scope["app"].state.vllm_config))
            return
        with watching() as watches:
            await self._app(scope, receive, _Response(send, watches).send)


async def _answer(send: Send, value: Any) -> None:
    headers = [(b"content-type", _JSON)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": _dump(value)})


class _Response:
    """One response on its way out."""

    def __init__(self, send: Send, watches: list[Watch]) -> None:
        self._send, self._watches = send, watches
        self._kind = b""
        self._start: Message | None = None  # kept back until the length is known
        self._body = b""  # of a JSON response, or the last chunk of a stream

    async def send(self, message: Message) -> None:
        if not self._watches:
            await self._send(message)
        elif message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] == "http.response.body" and self._kind == _JSON:
            await self._whole(message)
        elif message["type"] == "http.response.body" and self._kind == _EVENTS:
            await self._chunk(message)
        else:
            await self._send(message)

    async def _begin(self, message: Message) -> None:
        headers = {name.lower(): value for name, value in message.get("headers", ())}
        if message["status"] == 200 and b"content-encoding" not in headers:
            self._kind = headers.get(b"content-type", b"").partition(b";")[0].strip()
        if self._kind == _JSON:
            self._start = message
        else:
            await self._send(message)

    async def _whole(self, message: Message) -> None:
        self._body += message.get("body", b"")
        if message.get("more_body"):
            return
        body = with_statistics(self._body, self._result())
        assert self._start is not None
        others = [
            header for header in self._start.get("headers", ()) if header[0].lower() != b"content-length"
        ]
        length = (b"content-length", str(len(body)).encode())
        await self._send({**self._start, "headers": [*others, length]})
        await self._send({**message, "body": body})

    async def _chunk(self, message: Message) -> None:
        body = message.get("body", b"")
        if body.startswith(_DATA):
            self._body = body
        elif body.startswith(_END) and (last := last_chunk(self._body, self._result())):
            message = {**message, "body": last + body}
        await self._send(message)

    def _result(self) -> Any:
        """The statistics of the one prompt; a list of them for several, None for those without an answer."""
        results = [watch.result for watch in self._watches]
        return results[0] if len(results) == 1 else results


def with_statistics(body: bytes, result: Any) -> bytes:
    """A JSON object with the statistics as its last member; every other byte stays."""
    if not result or not body.endswith(b"}") or body == b"{}":
        return body
    return body[:-1] + b',"' + KEY.encode() + b'":' + _dump(result) + b"}"


def last_chunk(before: bytes, result: Any) -> bytes:
    """A chunk of a stream that has no choices, only the statistics; empty where there is nothing to say.

    Args:
        before: the chunk in front of it, whose id, model and time it repeats.
        result: the statistics.
    """
    if not result or not before:
        return b""
    chunk = json.loads(before.removeprefix(b"data: "))
    if "error" in chunk:
        return b""
    known = {name: chunk[name] for name in ("id", "object", "created", "model") if name in chunk}
    return b"data: " + _dump({**known, "choices": [], KEY: result}) + b"\n\n"


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
