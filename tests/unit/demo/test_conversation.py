"""From the page's conversation to the model's messages."""

import base64
from pathlib import Path

import pytest

from mmspec import MmspecError
from mmspec.demo.conversation import (
    answer_turn,
    is_note,
    last_question,
    note,
    pictures,
    question_of,
    to_messages,
    user_turn,
)


def url(path: str) -> str:
    return f"data:image/png;base64,{base64.b64encode(Path(path).read_bytes()).decode()}"


def test_a_conversation_becomes_messages(picture: str) -> None:
    history = [user_turn("What is it?", [picture, picture]), answer_turn("Red."), user_turn("Why?", [])]

    system, first, answer, second = to_messages(history, " Be brief. ")

    assert system == {"role": "system", "content": "Be brief."}
    part = {"type": "image_url", "image_url": {"url": url(picture)}}
    assert first == {"role": "user", "content": [part, part, {"type": "text", "text": "What is it?"}]}
    assert answer == {"role": "assistant", "content": "Red."}
    assert second == {"role": "user", "content": [{"type": "text", "text": "Why?"}]}
    assert pictures(history) == [picture, picture]


def test_what_gradio_gives_back_is_read_like_what_was_given(picture: str) -> None:
    file = {"type": "file", "file": {"path": picture, "mime_type": "image/png"}, "alt_text": None}
    text = {"type": "text", "text": "What is it?"}
    back = {"role": "user", "content": [file, text], "metadata": None, "options": None}

    assert to_messages([back]) == to_messages([user_turn("What is it?", [picture])])
    assert question_of(back) == ("What is it?", [picture])


def test_questions_without_an_answer_never_reach_the_model(picture: str) -> None:
    """A picture that was refused would be refused with each later question."""
    history = [user_turn("This?", [picture]), note("Refused."), user_turn("And now?", [])]

    assert to_messages(history) == to_messages(history[2:])
    assert pictures(history) == []
    # An answer that broke off stays, and so does its question; the remark behind it does not.
    broken = [user_turn("This?", [picture]), answer_turn("It is"), note("Broke off.")]
    assert to_messages(broken) == to_messages(broken[:2])


def test_a_remark_is_no_answer() -> None:
    assert is_note(note("x")) and not is_note(answer_turn("x"))
    assert not is_note({**answer_turn("x"), "metadata": None})


def test_the_last_question_is_found() -> None:
    assert last_question([]) is None
    assert last_question([user_turn("a", []), answer_turn("b"), user_turn("c", []), note("d")]) == 2


def test_a_picture_that_is_gone_is_named(picture: str) -> None:
    Path(picture).unlink()

    with pytest.raises(MmspecError, match=r"picture red\.png cannot be read \(No such file"):
        to_messages([user_turn("x", [picture])])
