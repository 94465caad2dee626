"""Odd pictures over HTTP: the answer is that of the right picture, or a 400 with one sentence, and the server lives."""

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import APIStatusError, BadRequestError, OpenAI
from PIL import Image

from mmspec.encoders.intake.headers import HEADER
from mmspec.encoders.intake.picture import take_in
from tests.odd_pictures import SETTINGS, OddPicture, card, odd_pictures, saved
from tests.serve.conftest import Server, serving

pytestmark = [pytest.mark.engine, pytest.mark.slow]

PICTURES = odd_pictures()
BREAK = "\u200b"
TYPED = "What does <|image_pad|> mean? <|vision_start|><|image_pad|><|vision_end|>"
CARD = saved(Image.fromarray(card()), "PNG")
TURNED = saved(Image.fromarray(np.ascontiguousarray(card()[::-1, ::-1])), "PNG")

Answer = tuple[int, list[list[float]]]


@pytest.fixture(scope="module")
def server(tiny_vlm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`mmspec serve` with the small limits of the odd pictures, and hosts to fetch from."""
    limits = json.dumps({"max_bytes": SETTINGS.max_bytes, "max_pixels": SETTINGS.max_pixels})
    flags = ["--intake", limits, "--limit-mm-per-prompt", '{"image": 4}']
    flags += ["--allowed-media-domains", "127.0.0.1", "no.such.host.invalid"]
    folder = tmp_path_factory.mktemp("log")
    with serving(tiny_vlm, folder, *flags, VLLM_MEDIA_FETCH_MAX_RETRIES="1") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=300, max_retries=0)


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    """A web server with a picture, a page, and nothing else."""

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = {"/card.html": CARD, "/page.png": b"<!DOCTYPE html><html></html>"}.get(self.path)
            self.send_response(404 if body is None else 200)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *args: Any) -> None:
            pass

    pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{pages.server_port}"
    pages.shutdown()


def data_url(data: bytes, start: str = "data:image/png;base64,") -> str:
    return start + base64.b64encode(data).decode()


def question(*urls: str, text: str = "abcd abcd") -> dict[str, Any]:
    pictures = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    messages = [{"role": "user", "content": [{"type": "text", "text": text}, *pictures]}]
    return {"model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 3}


def ask(client: OpenAI, asked: dict[str, Any]) -> tuple[Answer, list[str]]:
    """What the answer tells of the pixels: the prompt's length and likely tokens; and the intake's notes."""
    raw = client.chat.completions.with_raw_response.create(**asked, logprobs=True, top_logprobs=5)
    answer = raw.parse()
    likely = [[top.logprob for top in token.top_logprobs] for token in answer.choices[0].logprobs.content]
    return (answer.usage.prompt_tokens, likely), json.loads(raw.headers.get(HEADER, "[]"))


def same(one: Answer, other: Answer) -> bool:
    shapes = [len(likely) for likely in one[1]] == [len(likely) for likely in other[1]]
    return one[0] == other[0] and shapes and np.allclose(one[1], other[1], atol=1e-3)


def refusal(client: OpenAI, asked: dict[str, Any]) -> str:
    with pytest.raises(APIStatusError) as caught:
        client.chat.completions.create(**asked)
    assert isinstance(caught.value, BadRequestError), caught.value
    assert isinstance(caught.value.body, dict)
    message: str = caught.value.body["message"]
    assert "\n" not in message
    assert "Traceback" not in message
    return message


def test_the_answers_tell_pictures_apart(client: OpenAI) -> None:
    """What all comparisons below rest on."""
    upright, _ = ask(client, question(data_url(CARD)))
    turned, _ = ask(client, question(data_url(TURNED)))

    assert same(upright, ask(client, question(data_url(CARD)))[0])
    assert not same(upright, turned)


@pytest.mark.parametrize("odd", [odd for odd in PICTURES if odd.expected is not None], ids=str)
def test_the_answer_is_that_of_the_right_picture(client: OpenAI, odd: OddPicture) -> None:
    # Lossy files differ a little from what was meant, so there the intake, which has its own tests, says what is right.
    right = Image.fromarray(odd.expected) if odd.tolerance == 0 else take_in(odd.data, SETTINGS).image  # type: ignore[arg-type]

    answer, notes = ask(client, question(data_url(odd.data, "data:application/octet-stream;base64,")))

    assert same(answer, ask(client, question(data_url(saved(right, "PNG"))))[0])
    assert len(notes) == len(odd.noted)
    assert all(
        note.startswith("picture 1: ") and part in note for part, note in zip(odd.noted, notes, strict=True)
    )


@pytest.mark.parametrize("odd", [odd for odd in PICTURES if odd.expected is None], ids=str)
def test_what_is_no_picture_is_a_400_that_says_why(client: OpenAI, odd: OddPicture) -> None:
    message = refusal(client, question(data_url(odd.data)))

    assert message.startswith("picture 1: ")
    assert odd.refused in message


@pytest.mark.parametrize(
    "start",
    [
        "DATA:IMAGE/PNG;BASE64,",
        "data:image/png,",
        "data:,",
        "data:;base64,",
        "data:application/octet-stream;base64,",
        "data:text/plain;charset=utf-8;base64,",
        "data:image/jpeg;name=a.jpg;base64,",
    ],
)
def test_data_urls_in_every_spelling(client: OpenAI, start: str) -> None:
    assert same(ask(client, question(data_url(CARD, start)))[0], ask(client, question(data_url(CARD)))[0])


def test_a_picture_behind_an_address_is_told_by_its_content(client: OpenAI, web: str) -> None:
    by_address, _ = ask(client, question(f"{web}/card.html"))

    assert same(by_address, ask(client, question(data_url(CARD)))[0])
    assert "a web page" in refusal(client, question(f"{web}/page.png"))


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("{web}/missing.png", "404"),
        ("http://127.0.0.1:9/x.png", "its address cannot be read"),
        ("http://localhost/x.png", "must be from one of the allowed domains"),
        ("http://no.such.host.invalid/x.png", "its address cannot be read"),
        ("http://[broken/x.png", "its address cannot be read"),
        ("file:///etc/hostname", "--allowed-local-media-path"),
        ("/etc/hostname", "HTTP, data or file URL"),
        ("ftp://host/x.png", "HTTP, data or file URL"),
        (base64.b64encode(CARD).decode(), "send the picture as a data URL"),
        ("data:image/png;base64", "no comma"),
        ("data:image/png;base64,%%%", "broken"),
        ("data:image/png;base64,", "the file is empty"),
    ],
)
def test_an_address_without_a_picture_is_a_400(client: OpenAI, web: str, url: str, named: str) -> None:
    message = refusal(client, question(url.replace("{web}", web)))

    assert message.startswith("picture 1: ")
    assert named in message
    assert len(message) < 400


def test_the_picture_that_is_wrong_is_named(client: OpenAI) -> None:
    assert refusal(client, question(data_url(CARD), data_url(b"text"), data_url(CARD))).startswith(
        "picture 2: not"
    )


def test_the_same_picture_twice_and_another_one(client: OpenAI) -> None:
    grey = next(odd for odd in PICTURES if odd.name == "16-bit grey png")

    _, notes = ask(client, question(data_url(CARD), data_url(grey.data), data_url(CARD)))

    assert notes == ["picture 2: 16-bit grey from 0 to 65535 scaled to 8 bits"]


def test_a_stream_has_the_notes_in_its_header(client: OpenAI) -> None:
    grey = next(odd for odd in PICTURES if odd.name == "16-bit grey png")

    with client.chat.completions.with_streaming_response.create(
        **question(data_url(grey.data)), stream=True
    ) as response:
        notes = json.loads(response.headers[HEADER])
        assert any(response.iter_lines())

    assert notes == ["picture 1: 16-bit grey from 0 to 65535 scaled to 8 bits"]


def test_a_placeholder_that_was_typed_is_text(client: OpenAI) -> None:
    as_text = TYPED.replace("<|", f"<{BREAK}|")

    typed, notes = ask(client, question(data_url(CARD), text=TYPED))

    assert same(typed, ask(client, question(data_url(CARD), text=as_text))[0])
    assert not same(typed, ask(client, question(data_url(TURNED), text=as_text))[0])
    assert "text: <|image_pad|> was typed, and stays text" in notes
    assert len(notes) == 3


def test_placeholders_without_a_picture_are_text(client: OpenAI) -> None:
    typed, _ = ask(client, question(text=TYPED))

    assert same(typed, ask(client, question(text=TYPED.replace("<|", f"<{BREAK}|")))[0])


def test_after_all_that_the_server_answers_as_before(client: OpenAI, server: Server) -> None:
    """Stands last."""
    upright, _ = ask(client, question(data_url(CARD)))

    assert not same(upright, ask(client, question(data_url(TURNED)))[0])
    assert server.process.poll() is None
    assert "Traceback" not in server.log.read_text(errors="replace")
