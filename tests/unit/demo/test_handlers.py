"""What the page changes when something is done, over a scripted server; the page itself is tested in a browser."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from mmspec import MmspecError
from mmspec.demo.conversation import answer_turn, is_note, user_turn
from mmspec.demo.handlers import Handlers, sampling_from
from mmspec.demo.server import Sampling, Server
from mmspec.stats import EncoderCacheStats, RequestStats, VisualTokenStats
from tests.unit.demo.fake_server import Script, chunk, fake_server

PAGE: Any = SimpleNamespace(session_hash="page")
SETTINGS = ("", 0, 1, 64, "", 0.5)
STEPS = [{"drafted": 0, "accepted": 0, "ids": [1], "texts": ["Red."], "rejected": [], "rejected_text": ""}]
STATS = RequestStats(
    encoder_cache=EncoderCacheStats(1, 0, "device"), visual_tokens=VisualTokenStats(4, 2)
).to_dict()


class Parts:
    """The layout's components by name, so that changes can be looked up; see `Layout`."""

    def __getattr__(self, name: str) -> str:
        return name

    def busy_box(self, *, empty: bool) -> str:
        return f"busy, empty={empty}"

    def ready_box(self) -> str:
        return "ready"

    def adapted_to(self, offer: Any) -> dict[str, Any]:
        return {"banner": offer.model}


@pytest.fixture
def script() -> Script:
    made = Script()
    made.mmspec = {"statistics": True, "draft": "ngram", "fastv": {"keep": 1.0}}
    kept = [{"seen": 4, "kept": [0, 3]}]
    last = {**chunk(None, 0, mmspec={**STATS, "tokens": STEPS, "kept": kept}), "usage": None}
    made.chunks = [chunk("", 0), chunk("Red", 1), chunk(".", 2), last]
    return made


@pytest.fixture
def handlers(script: Script) -> Iterator[Handlers]:
    with fake_server(script) as url:
        yield Handlers(Server(url), Parts())  # type: ignore[arg-type]


def changes(happening: AsyncIterator[Any]) -> list[dict[Any, Any]]:
    """All that a handler changes."""

    async def run() -> list[dict[Any, Any]]:
        return [one async for one in happening]

    return asyncio.run(run())


def last_text(change: dict[Any, Any]) -> str:
    text: str = change["chat"][-1]["content"][-1]["text"]
    return text


def test_a_question_is_answered(handlers: Handlers, script: Script, picture: str) -> None:
    first, *_, last = changes(handlers.ask(PAGE, {"text": "What?", "files": [picture]}, [], *SETTINGS))

    assert first["box"] == "busy, empty=True" and len(first["chat"]) == 1
    assert last["box"] == "ready" and last_text(last) == "Red."
    assert last["kept"].size[0] >= 336 and "2 of 4" in last["kept_note"]
    assert "Red." in last["tokens"]
    assert script.bodies[0]["vllm_xargs"]["fastv_keep"] == 0.5


def test_nothing_is_asked_without_a_question(handlers: Handlers, script: Script) -> None:
    (change,) = changes(handlers.ask(PAGE, {"text": " ", "files": []}, [], *SETTINGS))

    assert "Type a question" in change["live"] and not script.bodies


def test_refusals_stand_in_the_chat(handlers: Handlers, script: Script) -> None:
    script.refusal = (400, {"message": "too long"})
    *_, last = changes(handlers.ask(PAGE, {"text": "What?"}, [], *SETTINGS))
    assert last_text(last) == "The server refused: too long." and is_note(last["chat"][-1])
    script.refusal = None

    *_, seed = changes(handlers.ask(PAGE, {"text": "What?"}, [], "", 0, 1, 64, "x", 1))
    assert "seed 'x' is no whole number" in last_text(seed) and seed["box"] == "ready"

    *_, again = changes(handlers.retry(PAGE, last["chat"], *SETTINGS))
    assert [message["role"] for message in again["chat"]] == ["user", "assistant"]
    assert last_text(again) == "Red."


def test_an_edited_question_forgets_what_came_after(handlers: Handlers, script: Script, picture: str) -> None:
    history = [user_turn("a", []), answer_turn("b"), user_turn("c", [picture]), answer_turn("d")]
    edited: Any = SimpleNamespace(index=2, value="e")

    *_, last = changes(handlers.edit(PAGE, edited, history, *SETTINGS))

    assert last["turns"] == last["chat"] == [*history[:2], user_turn("e", [picture]), answer_turn("Red.")]


def test_undo_gives_the_question_back(handlers: Handlers, picture: str) -> None:
    history = [user_turn("a", []), answer_turn("b"), user_turn("c", [picture]), answer_turn("d")]

    change = handlers.undo(history)

    assert change["chat"] == change["turns"] == history[:2]
    assert change["box"] == {"text": "c", "files": [picture]}
    assert handlers.undo([]) == {"live": ""}


def test_drafting_is_compared_after_a_warm_up(handlers: Handlers, script: Script) -> None:
    *_, last = changes(handlers.compare(PAGE, [user_turn("a", []), answer_turn("b")], *SETTINGS))

    assert [body["vllm_xargs"].get("mmspec_draft", True) for body in script.bodies] == [False, False, True]
    assert [body["max_tokens"] for body in script.bodies] == [1, 64, 64]
    assert all(body["temperature"] == 0 for body in script.bodies)
    assert "Both answers are the same" in last["comparison"]


def test_what_cannot_be_compared_is_said(handlers: Handlers, script: Script) -> None:
    (nothing,) = changes(handlers.compare(PAGE, [], *SETTINGS))
    assert "Ask something in the chat first" in nothing["comparison"]

    script.refusal = (500, {"message": "engine died"})
    *_, refused = changes(handlers.compare(PAGE, [user_turn("a", [])], *SETTINGS))
    assert "The server refused: engine died." in refused["comparison"]


def test_a_plain_server_offers_no_comparison(handlers: Handlers, script: Script) -> None:
    script.mmspec = None

    (change,) = changes(handlers.compare(PAGE, [user_turn("a", [])], *SETTINGS))

    assert "does not draft" in change["comparison"] and not script.bodies


def test_the_page_connects_or_says_why_not(handlers: Handlers, script: Script) -> None:
    assert changes(handlers.connect()) == [{"banner": "m"}]
    lost = Handlers(Server("http://127.0.0.1:9"), Parts())  # type: ignore[arg-type]
    (change,) = changes(lost.connect())
    assert "does not answer" in change["banner"]


def test_settings_are_typed() -> None:
    assert sampling_from(0.5, 1, 64.0, " 7 ", 1) == Sampling(0.5, 1.0, 64, 7, 1.0)
    assert sampling_from(0, 1, 64, None, 1).seed is None
    with pytest.raises(MmspecError, match="no whole number"):
        sampling_from(0, 1, 64, "1.5", 1)
