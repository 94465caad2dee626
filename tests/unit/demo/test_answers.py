"""Answers of a server: as they come in, stopped, refused, broken off."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from mmspec import MmspecError
from mmspec.demo.answers import EVERY, Answer, Asking, Running
from mmspec.demo.server import Offer, Sampling, Server, read_offer, request_body
from tests.unit.demo.fake_server import Script, chunk, fake_server

MESSAGES = [{"role": "user", "content": "x"}]
OURS = Offer("m", statistics=True, draft="ngram", keep=1.0)
TOLD = {"statistics": True, "draft": "ngram", "fastv": {"keep": 0.5}, "model_type": "llava"}


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def url(script: Script) -> Iterator[str]:
    with fake_server(script) as address:
        yield address


def ask(url: str, *, stop_after: float | None = None) -> tuple[list[tuple[str, int]], Answer]:
    """Text and tokens at each update, and the answer in the end."""

    async def run() -> tuple[list[tuple[str, int]], Answer]:
        server = Server(url)
        asking = Asking(lambda: server.read(OURS, MESSAGES, Sampling()))
        if stop_after is not None:
            asyncio.get_running_loop().call_later(stop_after, asking.stop)
        updates = []
        async for answer in asking.updates():
            updates.append((answer.text, answer.tokens))
        return updates, answer

    return asyncio.run(run())


def test_an_answer_comes_in_piece_by_piece(url: str, script: Script) -> None:
    pause = 3 * EVERY
    script.chunks = [chunk("", 0), chunk("a", 1), pause, chunk("bc", 3), chunk("d", 4), pause]
    script.chunks += [chunk("", 4), chunk(None, 4), {**chunk(None, 4, mmspec={"drafts": 1}), "usage": None}]

    updates, answer = ask(url)

    assert updates[0] == ("a", 1) and ("abcd", 4) in updates and updates[-1] == ("abcd", 4)
    assert answer.statistics == {"drafts": 1}
    assert answer.ttft is not None and answer.ttft > 0
    assert answer.seconds > EVERY
    assert answer.tokens_per_second == pytest.approx(3 / answer.seconds)


def test_a_server_may_count_at_the_end_only(url: str, script: Script) -> None:
    pause = 3 * EVERY
    pieces = [{**chunk(text, 0), "usage": None} for text in "abc"]
    script.chunks = [pieces[0], pause, *pieces[1:], 4 * pause, chunk(None, 3)]

    _, answer = ask(url)

    assert (answer.text, answer.tokens) == ("abc", 3)
    assert answer.ttft is not None and EVERY < answer.seconds < 4 * pause


def test_what_comes_fast_is_shown_together(url: str, script: Script) -> None:
    script.chunks = [chunk("x", number) for number in range(1, 201)]

    updates, answer = ask(url)

    assert answer.text == "x" * 200
    assert len(updates) < 100


def test_stopping_closes_the_connection(url: str, script: Script) -> None:
    script.chunks = [part for number in range(1, 200) for part in (chunk("x", number), 0.05)]

    _, answer = ask(url, stop_after=0.5)

    assert answer.stopped and answer.refusal is None and 0 < len(answer.text) < 100
    end = time.monotonic() + 20
    while not script.broken and time.monotonic() < end:
        time.sleep(0.05)
    assert script.broken == 1, "the server was not told"


def test_a_page_waits_for_one_answer_at_a_time() -> None:
    class Stoppable(Asking):
        stops = 0

        def stop(self) -> None:
            self.stops += 1

    running, first, second = Running(), Stoppable(None), Stoppable(None)  # type: ignore[arg-type]
    with running.only("page", first), running.only("other", second):
        running.stop("nobody")
        assert (first.stops, second.stops) == (0, 0)
        with running.only("page", second):
            assert (first.stops, second.stops) == (1, 0)
            running.stop("page")
            assert second.stops == 1
    running.stop("page")
    assert (first.stops, second.stops) == (1, 1)


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (400, {"message": "picture 1: not a\npicture"}, "The server refused: picture 1: not a picture."),
        (401, {"message": "Unauthorized"}, "wants an API key; set MMSPEC_API_KEY."),
        (500, {"message": "Oh!"}, "The server refused: Oh!"),
    ],
)
def test_a_refusal_is_one_sentence(
    url: str, script: Script, status: int, error: dict[str, str], said: str
) -> None:
    script.refusal = (status, error)

    _, answer = ask(url)

    assert answer.refusal is not None and said in answer.refusal
    assert not answer.text


def test_an_answer_that_breaks_off_keeps_its_text(url: str, script: Script) -> None:
    script.chunks = [chunk("a", 1), {"error": {"message": "engine died", "code": 500}}]

    _, answer = ask(url)

    assert answer.text == "a" and answer.refusal == "The server refused: engine died."


def test_a_dead_server_is_named() -> None:
    with fake_server(Script()) as url:
        pass
    _, answer = ask(url)

    assert answer.refusal == f"The server at {url} does not answer, or broke off; is it running?"
    with pytest.raises(MmspecError, match="does not answer"):
        asyncio.run(Server(url).offer())


def test_the_offer_is_read(url: str, script: Script) -> None:
    assert asyncio.run(Server(f"{url}/v1/").offer()) == Offer("m")
    script.mmspec = TOLD
    offer = asyncio.run(Server(url).offer())
    assert offer == Offer("m", statistics=True, draft="ngram", keep=0.5, crops=True) == read_offer("m", TOLD)


def test_only_what_is_offered_is_asked_for(url: str, script: Script) -> None:
    sampling = Sampling(keep=0.5, draft=False, seed=0)
    ours = request_body(OURS, MESSAGES, sampling)["extra_body"]["vllm_xargs"]

    assert ours == {"mmspec_stats": ["tokens", "kept"], "fastv_keep": 0.5, "mmspec_draft": False}
    assert request_body(Offer("m"), MESSAGES, sampling)["extra_body"] is None
    ask(url)
    (body,) = script.bodies
    assert body["stream"] and "seed" not in body and body["stream_options"]["continuous_usage_stats"]
