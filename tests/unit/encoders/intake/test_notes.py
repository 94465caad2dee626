"""Notes find the conversation they are about, and whoever asked for them."""

import asyncio
import json
from typing import Any

from mmspec.encoders.intake import IntakeSettings, notes
from mmspec.encoders.intake.headers import HEADER, IntakeHeader, encode_notes


def test_notes_come_in_the_pictures_order_with_remarks_last() -> None:
    with notes.gathered() as gathered, notes.conversation(IntakeSettings()) as opened:
        opened.remark("text: kept")
        opened.note(2, ["second"])
        opened.note(1, ["first", "again"])

    assert gathered == [["picture 1: first", "picture 1: again", "picture 2: second", "text: kept"]]


def test_nothing_is_kept_when_nobody_asks() -> None:
    with notes.conversation(IntakeSettings()):
        assert notes.current() is not None

    assert notes.current() is None
    with notes.gathered() as gathered:
        pass
    assert gathered == []


def test_fetched_pictures_get_the_numbers_that_were_expected() -> None:
    opened = notes.Conversation(IntakeSettings())
    opened.note(1, ["in memory"])
    opened.expected.extend([2, 3])

    assert [opened.next_number(), opened.next_number()] == [2, 3]


def test_conversations_at_the_same_time_do_not_mix() -> None:
    async def rendered(name: str, wait: float) -> None:
        with notes.conversation(IntakeSettings()):
            number = notes.current().next_number()  # type: ignore[union-attr]
            await asyncio.sleep(wait)
            notes.current().note(number, [name])  # type: ignore[union-attr]

    async def door(name: str, wait: float) -> list[list[str]]:
        with notes.gathered() as gathered:
            await asyncio.create_task(rendered(name, wait))
        return gathered

    async def both() -> list[Any]:
        return await asyncio.gather(door("slow", 0.05), door("fast", 0.0))

    assert asyncio.run(both()) == [[["picture 1: slow"]], [["picture 1: fast"]]]


def answered(lines: list[str], scope: str = "http") -> list[dict[str, Any]]:
    """What goes out of the middleware when the application notes `lines` and answers."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        with notes.conversation(IntakeSettings()) as opened:
            opened.note(1, lines)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
        await send({"type": "http.response.body", "body": b"{}"})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {}

    asyncio.run(IntakeHeader(app)({"type": scope}, receive, send))
    return sent


def test_a_response_has_the_notes_in_its_header() -> None:
    start, body = answered(["turned by 90°"])

    headers = dict(start["headers"])
    assert headers[b"a"] == b"b"
    assert json.loads(headers[HEADER.encode()]) == ["picture 1: turned by 90°"]
    assert body == {"type": "http.response.body", "body": b"{}"}


def test_a_response_without_notes_is_untouched() -> None:
    assert dict(answered([])[0]["headers"]) == {b"a": b"b"}
    assert dict(answered(["x"], "websocket")[0]["headers"]) == {b"a": b"b"}


def test_a_header_never_grows_too_long() -> None:
    value = encode_notes([f"picture {number}: {'x' * 100}" for number in range(500)])

    assert len(value) <= 4000
    shown = json.loads(value)
    assert shown[-1] == f"and {500 - len(shown) + 1} more"
    assert json.loads(encode_notes(["y" * 9000])) == ["and 1 more"]
