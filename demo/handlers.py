"""What the page does when something is clicked: each handler yields what changes, by component."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import gradio as gr

from mmspec.demo.answers import Answer, Asking, Running
from mmspec.demo.comparison import Comparison, comparison_view, progress
from mmspec.demo.conversation import (
    Message,
    answer_turn,
    last_question,
    note,
    pictures,
    question_of,
    to_messages,
    user_turn,
)
from mmspec.demo.figures import as_line, live_line
from mmspec.demo.kept import kept_picture
from mmspec.demo.layout import Layout
from mmspec.demo.server import Offer, Sampling, Server
from mmspec.demo.started import Started
from mmspec.demo.token_view import no_tokens, token_view
from mmspec.errors import MmspecError

Changes = dict[Any, Any]
"""New values by component."""

_ASK_FIRST = "Ask something in the chat first; the last question is asked again here."
_NO_DRAFTS = "This server does not draft, or does not let a request do without: there is nothing to compare."


class Handlers:
    """The handlers of one page.

    Args:
        server: what is asked.
        layout: the page's components.
        started: the server's process, where the demo has started it.
    """

    def __init__(self, server: Server, layout: Layout, started: Started | None = None) -> None:
        self._server, self._layout, self._started = server, layout, started
        self._offer: Offer | None = None
        self._running = Running()

    async def connect(self) -> AsyncIterator[Changes]:
        """When the page opens: waits for a server that is starting, and shows what it offers."""
        seconds = 0
        while True:
            try:
                offer = await self._ready()
                break
            except MmspecError as refusal:
                if self._started is None or not self._started.starting:
                    yield {self._layout.banner: as_line([("", str(refusal))])}
                    return
                yield {self._layout.banner: as_line([("", f"The server is starting ({seconds} s) …")])}
            await asyncio.sleep(1)
            seconds += 1
        yield self._layout.adapted_to(offer)

    async def ask(
        self, request: gr.Request, question: Message, history: list[Message], *settings: Any
    ) -> AsyncIterator[Changes]:
        """A new question."""
        text, files = question.get("text") or "", question.get("files") or []
        if not text.strip() and not files:
            yield {self._layout.live: as_line([("", "Type a question, or add a picture.")])}
            return
        turn = user_turn(text, files)
        async for changes in self._respond([*history, turn], settings, request, taken=True):
            yield changes

    async def retry(
        self, request: gr.Request, history: list[Message], *settings: Any
    ) -> AsyncIterator[Changes]:
        """The last question again."""
        if (index := last_question(history)) is not None:
            async for changes in self._respond(history[: index + 1], settings, request):
                yield changes

    async def edit(
        self, request: gr.Request, edited: gr.EditData, history: list[Message], *settings: Any
    ) -> AsyncIterator[Changes]:
        """A question with other words, and what came after it forgotten.

        Args:
            history: as it was before; in the chat the edited question has lost its pictures.
        """
        index = edited.index[0] if isinstance(edited.index, list | tuple) else edited.index
        _, files = question_of(history[index])
        turn = user_turn(str(edited.value), files)
        async for changes in self._respond([*history[:index], turn], settings, request):
            yield changes

    def undo(self, history: list[Message]) -> Changes:
        """Takes the last question back into the box."""
        index = last_question(history)
        if index is None:
            return {self._layout.live: ""}
        text, files = question_of(history[index])
        return {
            self._layout.chat: history[:index],
            self._layout.turns: history[:index],
            self._layout.box: {"text": text, "files": files},
        }

    async def clear(self, request: gr.Request) -> Changes:
        """Forgets the conversation."""
        await self.stop(request)
        return {self._layout.turns: []}

    async def stop(self, request: gr.Request) -> None:
        """Ends what the page waits for; the server aborts the request when the connection closes."""
        self._running.stop(str(request.session_hash))

    async def compare(
        self, request: gr.Request, history: list[Message], *settings: Any
    ) -> AsyncIterator[Changes]:
        """The last question without drafting and with it, one after the other, both greedy."""
        try:
            offer = await self._ready()
            if offer.draft is None:
                raise MmspecError(_NO_DRAFTS)
            if (index := last_question(history)) is None:
                raise MmspecError(_ASK_FIRST)
            system, *rest = settings
            sampling = sampling_from(*rest)
            messages = to_messages(history[: index + 1], system or "")
            answers: list[Answer] = []
            # The first is thrown away: after it, both find pictures encoded and the prompt cached.
            for name, limit, draft in (("warm-up", 1, False), ("off", None, False), ("on", None, True)):
                wanted = Sampling(max_tokens=limit or sampling.max_tokens, keep=sampling.keep, draft=draft)
                answer = Answer()
                async for answer in self._updates(offer, messages, wanted, request):
                    yield {self._layout.comparison: progress(f"drafting {name}: {answer.tokens} tokens …")}
                if answer.refusal or answer.stopped:
                    raise MmspecError(answer.refusal or "Stopped.")
                answers.append(answer)
        except MmspecError as refusal:
            yield {self._layout.comparison: progress(str(refusal))}
            return
        yield {self._layout.comparison: comparison_view(Comparison(answers[1], answers[2]))}

    async def _respond(
        self, history: list[Message], settings: Sequence[Any], request: gr.Request, *, taken: bool = False
    ) -> AsyncIterator[Changes]:
        """Streams the answer to the last message of `history`; `taken` empties the box that it came from."""
        layout, system = self._layout, settings[0]
        yield {
            layout.chat: history,
            layout.live: as_line([("", "…")]),
            layout.box: layout.busy_box(empty=taken),
        }
        answer, offer = Answer(), self._offer or Offer("")
        try:
            offer = await self._ready()
            messages = to_messages(history, system or "")
            async for answer in self._updates(offer, messages, sampling_from(*settings[1:]), request):
                turns = [answer_turn(answer.text)] if answer.text else []
                yield {layout.chat: [*history, *turns], layout.live: live_line(answer, offer, done=False)}
        except MmspecError as refusal:
            answer.refusal = str(refusal)
        if answer.refusal:
            self._offer = None  # another server may have taken its place
        yield self._conclusion(history, answer, offer)

    def _conclusion(self, history: list[Message], answer: Answer, offer: Offer) -> Changes:
        """The page when an answer has ended, one way or another."""
        layout, stats = self._layout, answer.statistics or {}
        turns = [answer_turn(answer.text)] if answer.text else []
        if answer.refusal or not turns:
            turns.append(note(answer.refusal or ("Stopped." if answer.stopped else "The answer is empty.")))
        picture, about = self._kept(history, stats.get("kept"), offer)
        return {
            layout.chat: [*history, *turns],
            layout.turns: [*history, *turns],
            layout.live: live_line(answer, offer, done=True),
            layout.tokens: token_view(stats["tokens"]) if stats.get("tokens") else no_tokens(offer),
            layout.kept: picture,
            layout.kept_note: progress(about),
            layout.box: layout.ready_box(),
        }

    def _kept(self, history: list[Message], kept: Any, offer: Offer) -> tuple[Any, str]:
        """The drawing of what was kept, if anything was dropped, and a sentence about it."""
        if offer.keep is None:
            return None, "This server does not prune; start one with mmspec serve --fastv-keep 1.0."
        if not kept:
            return (
                None,
                "Nothing was dropped from the last answer's pictures; lower the share in the settings.",
            )
        seen, stayed = sum(one["seen"] for one in kept), sum(len(one["kept"]) for one in kept)
        try:
            return (
                kept_picture(kept, pictures(history), crops=offer.crops),
                f"{stayed} of {seen} visual tokens were kept; the others are dark.",
            )
        except (MmspecError, OSError) as error:
            return None, f"{stayed} of {seen} visual tokens were kept; they cannot be drawn: {error}"

    async def _updates(
        self, offer: Offer, messages: list[Message], sampling: Sampling, request: gr.Request
    ) -> AsyncIterator[Answer]:
        asking = Asking(lambda: self._server.read(offer, messages, sampling))
        with self._running.only(str(request.session_hash), asking):
            async with aclosing(asking.updates()) as updates:
                async for answer in updates:
                    yield answer

    async def _ready(self) -> Offer:
        """What the server offers, asked once.

        Raises:
            MmspecError: it does not answer, or it has ended.
        """
        if self._started is not None:
            self._started.require_alive()
        if self._offer is None:
            self._offer = await self._server.offer()
        return self._offer


def sampling_from(
    temperature: float, top_p: float, max_tokens: float, seed: str | None, keep: float
) -> Sampling:
    """The settings of the page, typed.

    Raises:
        MmspecError: a seed that is no number.
    """
    seed = (seed or "").strip()
    if seed and not seed.removeprefix("-").isdecimal():
        raise MmspecError(
            f"The seed {seed!r} is no whole number; leave it empty, or give one in the settings."
        )
    return Sampling(
        temperature=float(temperature),
        top_p=float(top_p),
        max_tokens=int(max_tokens),
        seed=int(seed) if seed else None,
        keep=float(keep),
    )
