"""The ASGI middleware: what goes out with statistics, and what stays as it is."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from mmspec.serving.middleware import Statistics
from mmspec.serving.watch import Watch, watching

JSON, EVENTS = b"application/json", b"text/event-stream; charset=utf-8"
CHUNK = {"id": "c1", "object": "chat.completion.chunk", "created": 5, "model": "m", "choices": [{"index": 0}]}


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


STREAM = [event(CHUNK), b": keep-alive\n\n", b"data: [DONE]\n\n", b""]


class App:
    """Answers with `bodies`, and has generated one answer for each of `results` by then."""

    def __init__(self, kind: bytes, bodies: list[bytes], results: list[Any], status: int = 200) -> None:
        self.kind, self.bodies, self.results, self.status = kind, bodies, results, status

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from mmspec.serving.watch import _watches

        found = _watches.get()
        assert found is not None
        for result in self.results:
            watch = Watch.__new__(Watch)
            watch.result = result
            found.append(watch)
        length = str(sum(map(len, self.bodies))).encode()
        headers = [(b"content-type", self.kind), (b"content-length", length), (b"x-other", b"1")]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        for number, body in enumerate(self.bodies, 1):
            await send({"type": "http.response.body", "body": body, "more_body": number < len(self.bodies)})


def respond(asgi: Any, **scope: Any) -> list[dict[str, Any]]:
    """The messages that leave the middleware."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    whole = {"type": "http", "path": "/v1/chat/completions", "method": "POST", **scope}
    asyncio.run(Statistics(asgi)(whole, None, send))  # type: ignore[arg-type]
    return sent


def test_responses_pass_unchanged_when_nothing_was_asked() -> None:
    for kind, bodies in ((JSON, [b'{"a":', b"1}"]), (EVENTS, STREAM)):
        start, *rest = respond(App(kind, bodies, []))
        assert [message["body"] for message in rest] == bodies
        assert start["headers"][1:] == [
            (b"content-length", str(sum(map(len, bodies))).encode()),
            (b"x-other", b"1"),
        ]


def test_a_json_response_gets_one_more_member() -> None:
    body = '{"a": 1,  "ä": "}"}'.encode()
    start, message = respond(App(JSON, [body[:5], body[5:]], [{"drafts": 3}]))

    assert message["body"] == body[:-1] + b',"mmspec":{"drafts":3}}'
    headers = dict(start["headers"])
    assert headers[b"content-length"] == str(len(message["body"])).encode() and headers[b"x-other"] == b"1"


def test_a_stream_gets_one_more_chunk_at_its_end() -> None:
    _, *rest = respond(App(EVENTS, STREAM, [{"drafts": 3}]))

    *before, end, last = [message["body"] for message in rest]
    assert before == STREAM[:2] and last == b""
    chunk, done = end.split(b"\n\n", 1)
    assert done == STREAM[2]
    known = {key: value for key, value in CHUNK.items() if key != "choices"}
    assert json.loads(chunk.removeprefix(b"data: ")) == {**known, "choices": [], "mmspec": {"drafts": 3}}


def test_several_prompts_have_their_statistics_in_order() -> None:
    _, message = respond(App(JSON, [b'{"a":1}'], [{"drafts": 1}, None, {"drafts": 2}]))

    assert json.loads(message["body"])["mmspec"] == [{"drafts": 1}, None, {"drafts": 2}]


@pytest.mark.parametrize(
    "app",
    [
        App(JSON, [b'{"error":{}}'], [None], status=400),
        App(JSON, [b'{"error":{}}'], [{"drafts": 1}], status=500),
        App(JSON, [b"[1]"], [{"drafts": 1}]),
        App(b"text/plain", [b"{}"], [{"drafts": 1}]),
        App(EVENTS, [event({"error": {}}), b"data: [DONE]\n\n"], [{"drafts": 1}]),
        App(EVENTS, [event(CHUNK), b"data: [DONE]\n\n"], [None]),
    ],
)
def test_what_is_no_answer_stays_as_it_is(app: App) -> None:
    start, *rest = respond(app)

    assert [message["body"] for message in rest] == app.bodies
    assert dict(start["headers"])[b"content-length"] == str(sum(map(len, app.bodies))).encode()


def test_the_server_says_what_it_offers() -> None:
    config = SimpleNamespace(
        model_config=SimpleNamespace(hf_config=SimpleNamespace(model_type="llava")),
        speculative_config=SimpleNamespace(method="ngram", num_speculative_tokens=4),
        additional_config={"mmspec": {"fastv": {"keep": 1.0}}},
    )
    app = SimpleNamespace(state=SimpleNamespace(vllm_config=config))

    start, message = respond(None, path="/mmspec", method="GET", app=app)

    found = json.loads(message["body"])
    assert start["status"] == 200
    assert (found["draft"], found["num_speculative_tokens"], found["model_type"]) == ("ngram", 4, "llava")
    assert found["fastv"] == {"layer": 2, "keep": 1.0, "scores": "last"} and not found["encoder_cache"]


def test_watches_end_with_their_request() -> None:
    with watching() as outer:
        with watching() as inner:
            assert inner is not outer
        from mmspec.serving.watch import _watches

        assert _watches.get() is outer
