"""The origin of tokens, with a decoder for which a token is a byte of UTF-8."""

from hypothesis import given
from hypothesis import strategies as st

from mmspec.serving.tokens import token_origins, whole_characters
from mmspec.serving.trace import Step


def decode(token_ids: list[int]) -> str:
    return bytes(token_ids).decode(errors="replace")


@given(st.text())
def test_the_texts_are_whole_characters_and_add_up(text: str) -> None:
    texts = whole_characters(list(text.encode()), decode)

    assert [piece for piece in texts if piece] == list(text)
    assert len(texts) == len(text.encode())


def test_half_a_character_at_the_end_is_shown_as_such() -> None:
    assert whole_characters(list("aä".encode()[:-1]), decode) == ["a", "\ufffd"]


def test_a_record_becomes_the_step_again() -> None:
    for step in (Step((), 0, 1), Step((5, 6, 7), 2, 3), Step((-1, -1), 1, 2)):
        assert Step.from_record(step.to_record()) == step


def test_tokens_are_told_apart_by_their_origin() -> None:
    """One token from the prefill, a step with one of three drafts accepted, a step with all of two."""
    steps = [Step((), 0, 1), Step(tuple(b"bxy"), 1, 2), Step(tuple(b"de"), 2, 3)]

    first, second, third = token_origins(steps, list(b"abcdef"), decode)

    assert (first["drafted"], first["accepted"], first["texts"]) == (0, 0, ["a"])
    assert (second["accepted"], second["texts"], second["rejected_text"]) == (1, ["b", "c"], "xy")
    assert (third["accepted"], third["texts"], third["rejected"]) == (2, ["d", "e", "f"], [])


def test_an_answer_may_end_within_a_step() -> None:
    """At a stop string, which the engine's process does not know: what lies behind was not accepted by anyone."""
    first, second = token_origins([Step((), 0, 1), Step(tuple(b"bcd"), 3, 4)], list(b"ab"), decode)

    assert (second["accepted"], second["texts"], second["drafted"]) == (1, ["b"], 3)
    assert first["texts"] == ["a"]


def test_drafts_that_the_scheduler_is_not_told_are_counted_only() -> None:
    (step,) = token_origins([Step((-1, -1), 0, 1)], list(b"a"), decode)

    assert (step["drafted"], step["rejected"], step["rejected_text"]) == (2, [], "")
