"""What the intake did for a conversation, gathered while vLLM renders it and handed to whoever asked for it.

vLLM's rendering has no way to hand something on beside the prompt; it runs in one context (`contextvars`) with the
door that called it, and tasks that it starts inherit that context.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from mmspec.encoders.intake.settings import IntakeSettings


@dataclass
class Conversation:
    """One conversation, or one prompt, on its way in.

    Attributes:
        expected: numbers of the pictures that vLLM will fetch, in the order in which it does.
    """

    settings: IntakeSettings
    expected: deque[int] = field(default_factory=deque)
    _changes: dict[int, list[str]] = field(default_factory=dict)  # by the picture's number, from 1
    _remarks: list[str] = field(default_factory=list)

    def next_number(self) -> int:
        """The number of the picture that is fetched now. To be asked before anything is awaited."""
        return self.expected.popleft() if self.expected else len(self._changes) + 1

    def note(self, number: int, changes: list[str]) -> None:
        """Notes what was done to a picture."""
        self._changes[number] = changes

    def remark(self, line: str) -> None:
        """Notes something that is about no picture."""
        self._remarks.append(line)

    @property
    def lines(self) -> list[str]:
        """All notes, a sentence each, in the pictures' order."""
        pictures = [f"picture {n}: {line}" for n in sorted(self._changes) for line in self._changes[n]]
        return pictures + self._remarks


_current: ContextVar[Conversation | None] = ContextVar("mmspec_intake_conversation", default=None)
_gathered: ContextVar[list[list[str]] | None] = ContextVar("mmspec_intake_notes", default=None)


def current() -> Conversation | None:
    """The conversation that is being rendered for an engine with an intake; None for other engines."""
    return _current.get()


@contextmanager
def conversation(settings: IntakeSettings) -> Iterator[Conversation]:
    """What is rendered inside is one conversation; its notes go to `gathered`, if anyone asked."""
    opened = Conversation(settings)
    token = _current.set(opened)
    try:
        yield opened
    finally:
        _current.reset(token)
    notes = _gathered.get()
    if notes is not None:
        notes.append(opened.lines)


@contextmanager
def gathered() -> Iterator[list[list[str]]]:
    """Fills the list that it gives: the notes of every conversation that is rendered inside, in order."""
    notes: list[list[str]] = []
    token = _gathered.set(notes)
    try:
        yield notes
    finally:
        _gathered.reset(token)


def noted() -> list[str]:
    """The notes that whoever calls from inside `gathered` has caused so far; none outside of it."""
    return [line for lines in _gathered.get() or () for line in lines]
