"""The target answers conversations, turn by turn, and every answer becomes part of a sequence to capture."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from mmspec.errors import MmspecError
from mmspec.heads.capture.conversations import PICTURE, Conversation, Skipped
from mmspec.heads.capture.pictures import Picture, open_picture
from mmspec.heads.capture.sequences import Answer, Answered, Prompt
from mmspec.heads.capture.settings import CaptureSettings

Message = dict[str, Any]


class AnsweringEngine(Protocol):
    """What `CaptureEngine` offers here."""

    @property
    def longest(self) -> int: ...

    def render(self, messages: list[Message]) -> Prompt: ...

    def answer(
        self,
        prompts: Sequence[Prompt],
        *,
        temperature: float,
        top_p: float,
        most: Sequence[int],
        seeds: Sequence[int],
    ) -> list[Answer]: ...


@dataclass
class Dialogue:
    """A conversation on its way through its turns."""

    conversation: Conversation
    turns: list[list[Message]]  # what is said before each answer
    messages: list[Message] = field(default_factory=list)
    answered: list[Answered] = field(default_factory=list)
    prompt: Prompt | None = None  # of the turn that is due


def answer_all(
    engine: AnsweringEngine,
    conversations: Sequence[Conversation],
    settings: CaptureSettings,
    skip: Callable[[Skipped], None],
    decode: Callable[[bytes], Any] | None = None,
) -> list[Dialogue]:
    """Answers the conversations in one batch a turn; those without any answer are skipped and left out.

    Turns of a conversation share a sequence as long as the chat template gives earlier answers the tokens that the
    target said; where it does not, as serving would not, a new sequence begins.
    """
    dialogues = [
        dialogue for one in conversations if (dialogue := _open(one, settings, skip, decode)) is not None
    ]
    for turn in range(max((len(dialogue.turns) for dialogue in dialogues), default=0)):
        due = [dialogue for dialogue in dialogues if _prepare(engine, dialogue, turn, skip)]
        prompts = [dialogue.prompt for dialogue in due if dialogue.prompt is not None]
        answers = engine.answer(
            prompts,
            temperature=settings.temperature,
            top_p=settings.top_p,
            most=[min(settings.max_tokens, engine.longest - len(prompt.token_ids)) for prompt in prompts],
            seeds=[_seed(settings.seed, dialogue.conversation.key, turn) for dialogue in due],
        )
        for dialogue, prompt, answer in zip(due, prompts, answers, strict=True):
            _take(dialogue, prompt, answer)
    return [dialogue for dialogue in dialogues if dialogue.answered]


def split_turns(messages: Sequence[Message], *, all_turns: bool) -> list[list[Message]]:
    """What is said before each of the answers: before that to the last user turn, or to every one.

    With `all_turns` the target's own answers stand in place of the given ones.
    """
    users = [number for number, message in enumerate(messages) if message["role"] == "user"]
    if not all_turns:
        return [list(messages[: users[-1] + 1])]
    starts = [0, *(number + 1 for number in users[:-1])]
    return [
        [message for message in messages[start : end + 1] if message["role"] != "assistant"]
        for start, end in zip(starts, users, strict=True)
    ]


def _open(
    conversation: Conversation,
    settings: CaptureSettings,
    skip: Callable[[Skipped], None],
    decode: Callable[[bytes], Any] | None,
) -> Dialogue | None:
    folder = settings.prompts.parent
    try:
        turns = split_turns(conversation.messages, all_turns=settings.all_turns)
        opened = [[_with_pictures(message, folder, decode) for message in turn] for turn in turns]
    except MmspecError as error:
        skip(Skipped(conversation.line, str(error)))
        return None
    return Dialogue(conversation, opened)


def _with_pictures(message: Message, folder: Path, decode: Callable[[bytes], Any] | None) -> Message:
    if isinstance(message["content"], str):
        return message
    parts = [
        _picture_part(open_picture(part["picture"], folder, decode)) if part["type"] == PICTURE else part
        for part in message["content"]
    ]
    return {**message, "content": parts}


def _picture_part(picture: Picture) -> dict[str, Any]:
    """vLLM takes the `uuid` as the key of all its caches, so the features come back under it."""
    return {"type": "image_pil", "image_pil": picture.image, "uuid": picture.key}


def _prepare(engine: AnsweringEngine, dialogue: Dialogue, turn: int, skip: Callable[[Skipped], None]) -> bool:
    """Renders the turn; whether there is one and the target can take it."""
    if turn >= len(dialogue.turns):
        return False
    dialogue.messages += dialogue.turns[turn]
    try:
        prompt = engine.render(dialogue.messages)
        if len(prompt.token_ids) >= engine.longest:
            raise MmspecError(f"{len(prompt.token_ids)} tokens, and at most {engine.longest} fit the context")
    except Exception as error:  # processors and templates raise many kinds
        reason = " ".join(str(error).split())[:200]
        skip(Skipped(dialogue.conversation.line, f"turn {turn + 1}: {reason}" if turn else reason))
        dialogue.turns = dialogue.turns[:turn]
        return False
    dialogue.prompt = prompt
    return True


def _take(dialogue: Dialogue, prompt: Prompt, answer: Answer) -> None:
    dialogue.messages.append({"role": "assistant", "content": answer.text})
    start = len(prompt.token_ids)
    span = (start, start + len(answer.token_ids))
    sequence = prompt.extended(answer.token_ids)
    before = dialogue.answered[-1] if dialogue.answered else None
    if before is not None and prompt.token_ids[: len(before.prompt.token_ids)] == before.prompt.token_ids:
        dialogue.answered[-1] = Answered(sequence, (*before.spans, span))
    else:
        dialogue.answered.append(Answered(sequence, (span,)))


def _seed(seed: int, key: str, turn: int) -> int:
    """The same for a conversation in whatever batch or run it is answered."""
    return int.from_bytes(hashlib.sha256(f"{seed} {key} {turn}".encode()).digest()[:4]) >> 1
