"""What a server is sent by mistake, by slow and vanishing clients, and by many at once: it lives and answers as before.

MMSPEC_LOAD_ROUNDS=200 makes the load a long one.
"""

import base64
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from openai import AuthenticationError, OpenAI
from PIL import Image, ImageDraw

from mmspec.bench.server_load import Load, figures, resident_mib, wait_until_quiet
from mmspec.encoders.cache import FolderTier
from tests.odd_pictures import saved
from tests.serve.conftest import Server, serving

pytestmark = [pytest.mark.engine, pytest.mark.slow]

KEY = "a secret"
ROUNDS = int(os.environ.get("MMSPEC_LOAD_ROUNDS", "2"))
CHAT = "/v1/chat/completions"
JSON = {"Content-Type": "application/json"}


def picture(number: int) -> bytes:
    drawn = Image.new("RGB", (112, 84), "white")
    ImageDraw.Draw(drawn).rectangle((4 * number, 10, 4 * number + 40, 70), fill=("red", "blue")[number % 2])
    return saved(drawn, "PNG")


PICTURES = [picture(number) for number in range(8)]
OF_REFUSED = 8  # the picture of requests that are refused, and of no others


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("features")


@pytest.fixture(scope="module")
def server(tiny_vlm: Path, features: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`mmspec serve` with a key, and the cache in a folder."""
    flags = ["--api-key", KEY, "--encoder-cache", str(features), "--encoder-cache-size", "50MB"]
    flags += ["--limit-mm-per-prompt", '{"image": 4}']
    with serving(tiny_vlm, tmp_path_factory.mktemp("log"), *flags) as running:
        yield running


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=600) as client:
        yield client


def question(number: int = 0, text: str = "abcd abcd", **more: Any) -> dict[str, Any]:
    url = "data:image/png;base64," + base64.b64encode(picture(number)).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}]
    messages = [{"role": "user", "content": content}]
    return {"model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 8, **more}


def answer(http: httpx.Client, number: int = 0) -> str:
    answered = http.post(CHAT, json=question(number))
    assert answered.status_code == 200, answered.text
    text: str = answered.json()["choices"][0]["message"]["content"]
    return text


def test_without_the_key_nobody_is_answered(server: Server) -> None:
    for key in ("another", KEY[:-1], KEY.upper()):
        with pytest.raises(AuthenticationError) as caught:
            OpenAI(base_url=f"{server.url}/v1", api_key=key).models.list()
        assert caught.value.status_code == 401
    assert httpx.post(server.url + CHAT, json=question(), timeout=60).status_code == 401

    assert OpenAI(base_url=f"{server.url}/v1", api_key=KEY).models.list().data[0].id == "tiny"
    assert httpx.get(f"{server.url}/health", timeout=60).status_code == 200  # for those who watch the server


def without(key: str) -> bytes:
    return json.dumps({name: value for name, value in question(OF_REFUSED).items() if name != key}).encode()


def asked(**changes: Any) -> bytes:
    return json.dumps(question(OF_REFUSED) | changes).encode()


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"", JSON),
        (b"{", JSON),
        (asked()[:-1], JSON),
        (b"[]", JSON),
        (b"null", JSON),
        (b"\x89PNG\r\n\xff\xfe", JSON),
        (b"[" * 100_000, JSON),
        (asked(), {"Content-Type": "text/plain"}),
        (asked(), {"Content-Type": "multipart/form-data"}),
        (without("messages"), JSON),
        (asked(messages=[]), JSON),
        (asked(messages="hello"), JSON),
        (asked(messages=[{"role": "user", "content": [{"type": "image_url"}]}]), JSON),
        (asked(messages=[{"role": "user", "content": [{"type": "hologram", "hologram": 1}]}]), JSON),
        (asked(model="another"), JSON),
        (asked(max_tokens=-1), JSON),
        (asked(max_tokens="many"), JSON),
        (asked(temperature=-1), JSON),
        (asked(n=0), JSON),
        (asked(vllm_xargs="fastv"), JSON),
        (json.dumps(question(OF_REFUSED, text="abcd " * 2_000_000)).encode(), JSON),
        (
            asked(
                messages=[
                    {"role": "user", "content": question(OF_REFUSED)["messages"][0]["content"][:1] * 50}
                ]
            ),
            JSON,
        ),
    ],
    ids=[
        *("nothing", "broken json", "cut json", "a list", "null", "no text", "100000 brackets"),
        *("plain text", "a form", "no messages", "empty messages", "messages of text"),
        *("no url", "unknown part", "unknown model", "negative max_tokens", "max_tokens of text"),
        *("negative temperature", "no answer wanted", "text for arguments", "10 MB of text", "50 pictures"),
    ],
)
def test_a_wrong_body_is_the_clients_mistake(
    http: httpx.Client, server: Server, body: bytes, headers: dict[str, str]
) -> None:
    refused = http.post(CHAT, content=body, headers=headers)

    assert 400 <= refused.status_code < 500, refused.text[:500]
    assert server.process.poll() is None
    assert http.get("/health").status_code == 200


def test_the_picture_of_a_refused_request_is_answered_about(http: httpx.Client) -> None:
    """Without `mmspec.patches.unsent_pictures` the first answer is a 500 (docs/faults.md)."""
    refused = http.post(CHAT, json=question(OF_REFUSED, vllm_xargs={"mmspec_stat": 1}))
    assert refused.status_code == 400, refused.text

    assert answer(http, OF_REFUSED)


def test_clients_that_are_slow_hold_up_nobody(http: httpx.Client, server: Server) -> None:
    """One never ends its request, one does not read its answer."""
    before = answer(http)
    host, port = urlsplit(server.url).hostname, urlsplit(server.url).port
    body = json.dumps(question(1, stream=True, max_tokens=64)).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {KEY}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, port)) as writing, socket.create_connection((host, port)) as reading:
        writing.sendall(head.encode() + body[: len(body) // 2])
        reading.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        reading.sendall(head.encode() + body)
        assert answer(http) == before
        writing.sendall(body[len(body) // 2 :])
        assert b" 200 " in writing.recv(64)


@pytest.mark.parametrize("seconds", [0.0, 0.1, 1.0])
def test_clients_that_vanish_leave_no_request_behind(
    http: httpx.Client, server: Server, seconds: float
) -> None:
    before = answer(http)
    host, port = urlsplit(server.url).hostname, urlsplit(server.url).port
    body = json.dumps(question(2, stream=True, max_tokens=1500, ignore_eos=True)).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {KEY}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    for _ in range(4):
        with socket.create_connection((host, port)) as vanishing:
            vanishing.sendall(head.encode() + body)
            time.sleep(seconds)

    wait_until_quiet(server.url)
    assert answer(http) == before


def test_many_at_once_of_which_some_are_given_up(http: httpx.Client, server: Server) -> None:
    load = Load(server.url, "tiny", PICTURES, api_key=KEY, max_tokens=8, prompt="abcd abcd")
    alone = load.alone()
    for _ in range(2):  # until memory pools and caches have their size
        load.at_once(64)
    wait_until_quiet(server.url)
    warm = resident_mib(server.process.pid)

    rounds = [load.at_once(64) for _ in range(ROUNDS)]

    wait_until_quiet(server.url)
    assert [one.errors for one in rounds] == [[]] * ROUNDS
    assert [(one.finished, one.aborted) for one in rounds] == [(58, 6)] * ROUNDS
    assert resident_mib(server.process.pid) < 1.03 * warm
    assert load.alone() == alone
    assert figures(server.url, ["vllm:mmspec_encoder_cache_errors_total"]) == {
        "vllm:mmspec_encoder_cache_errors_total": 0
    }


def test_sigterm_ends_the_server_in_time_and_keeps_what_it_encoded(
    http: httpx.Client, server: Server, features: Path
) -> None:
    """Stands last. New pictures are on their way through the tower, and one answer is half written."""
    stored = len(list((features / "entries").iterdir()))
    started, ended = threading.Event(), threading.Event()

    def ask(number: int) -> None:
        drawn = saved(Image.effect_noise((112, 84), 10 * number + 10).convert("RGB"), "PNG")
        url = "data:image/png;base64," + base64.b64encode(drawn).decode()
        messages = question()["messages"]
        messages[0]["content"][0]["image_url"]["url"] = url
        body = question(stream=True, max_tokens=400, ignore_eos=True) | {"messages": messages}
        try:
            with http.stream("POST", CHAT, json=body) as stream:
                for _ in stream.iter_lines():
                    started.set()
        except httpx.HTTPError:
            pass  # cut off
        ended.set()

    clients = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for client in clients:
        client.start()
    assert started.wait(120)
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    code = server.process.wait(timeout=60)
    took = time.monotonic() - began
    for client in clients:
        client.join(60)

    assert code == 0
    assert took < 30  # eight for requests and cache, the rest for a busy machine
    assert ended.is_set() and not any(client.is_alive() for client in clients)
    found = FolderTier(features, 50_000_000).verify()
    assert found.clean
    assert found.entries > stored
