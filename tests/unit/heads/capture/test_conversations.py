"""Lines of a prompts file become conversations, or a reason that names the line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mmspec.errors import MmspecError
from mmspec.heads.capture.answering import split_turns
from mmspec.heads.capture.conversations import PICTURE, Conversation, Skipped, read_conversations
from tests.unit.heads.capture.fake import user

Write = Callable[..., Path]
SYSTEM = {"role": "system", "content": "s"}
SAID = {"role": "assistant", "content": "a"}


def only(path: Path) -> Conversation | Skipped:
    (one,) = read_conversations(path)
    return one


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("[]", 'list of "messages"'),
        ({"messages": "hello"}, 'list of "messages"'),
        ({"messages": []}, "no user turn"),
        ({"messages": [SAID]}, "no user turn"),
        ({"messages": [{"content": "x"}]}, "roles"),
        ({"messages": [{"role": "user"}]}, "neither text nor a list"),
        ({"messages": [{"role": "user", "content": [{"type": "video_url"}]}]}, "neither text nor a picture"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "without a path"),
        ({"messages": [user("x")], "image": 3}, "without a path"),
        ("\xff\xfe", "not JSON"),
    ],
)
def test_a_line_that_cannot_be_asked_is_named(line: Any, reason: str, write: Write) -> None:
    skipped = only(write("", line))
    assert isinstance(skipped, Skipped)
    assert skipped.line == 2
    assert reason in skipped.reason


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "a.png"}},
        {"type": "image_url", "image_url": "a.png"},
        {"type": "image", "image": "a.png"},
        {"type": "input_image", "image_url": "a.png"},
    ],
)
def test_pictures_may_be_written_in_several_ways(part: dict[str, Any], write: Write) -> None:
    conversation = only(write({"messages": [{"role": "user", "content": [part]}]}))
    assert isinstance(conversation, Conversation)
    assert conversation.messages[0]["content"] == [{"type": PICTURE, "picture": "a.png"}]


@pytest.mark.parametrize("image", ["a.png", ["a.png"]])
def test_the_field_image_goes_ahead_of_the_first_user_turn(image: Any, write: Write) -> None:
    conversation = only(write({"image": image, "messages": [SYSTEM, {"role": "user", "content": "x"}]}))
    assert isinstance(conversation, Conversation)
    assert conversation.messages[1]["content"] == [
        {"type": PICTURE, "picture": "a.png"},
        {"type": "text", "text": "x"},
    ]


def test_a_key_is_that_of_the_content_and_repeated_lines_are_counted(write: Write) -> None:
    first, second, again = read_conversations(
        write({"messages": [user("x")]}, {"messages": [user("y")]}, {"messages": [user("x")]})
    )
    (moved,) = read_conversations(write({"messages": [user("y")]}))
    assert isinstance(first, Conversation) and isinstance(second, Conversation)
    assert isinstance(again, Conversation) and isinstance(moved, Conversation)
    assert first.key != again.key
    assert moved.key == second.key


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(MmspecError, match="cannot be read"):
        list(read_conversations(tmp_path / "none.jsonl"))


def test_the_last_user_turn_is_answered_with_what_was_said_before() -> None:
    first, second = user("1"), user("2")
    assert split_turns([SYSTEM, first, SAID, second, SAID], all_turns=False) == [
        [SYSTEM, first, SAID, second]
    ]


def test_every_user_turn_is_answered_in_order_by_the_target_alone() -> None:
    first, second = user("1"), user("2")
    turns = split_turns([SYSTEM, first, SAID, second, SAID], all_turns=True)
    assert turns == [[SYSTEM, first], [second]]
