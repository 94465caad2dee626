"""One answer as it comes in from a server, and how it is stopped."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from mmspec.errors import MmspecError

EVERY = 0.1
"""Seconds between two updates of the page: what comes in between is shown together, so that a page that draws slowly
does not hold back the stream."""


@dataclass
class Answer:
    """What has come in so far.

    Attributes:
        tokens: generated, as the server counts them.
        ttft: seconds from asking to the first token.
        seconds: from the first token to the last.
        statistics: mmspec's, where the server gives them; they come last.
        refusal: why there is no answer, or no more of it.
    """

    text: str = ""
    tokens: int = 0
    ttft: float | None = None
    seconds: float = 0.0
    statistics: dict[str, Any] | None = None
    refusal: str | None = None
    stopped: bool = False

    @property
    def tokens_per_second(self) -> float | None:
        """Of the tokens behind the first; None while there are none."""
        return (self.tokens - 1) / self.seconds if self.tokens > 1 and self.seconds > 0 else None


Reading = Callable[[], Awaitable[AsyncIterator[Any]]]
"""Sends the request; gives the chunks of its stream."""


class Asking:
    """A request under way, read by a task of its own.

    Args:
        reading: what to read.
    """

    def __init__(self, reading: Reading) -> None:
        self.answer = Answer()
        self._reading = reading
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def updates(self) -> AsyncGenerator[Answer, None]:
        """The answer each time that there is more of it, and once more at its end.

        Leaving the loop closes the connection, upon which the server aborts the request.
        """
        self._task = asyncio.create_task(self._read())
        try:
            while not self._task.done():
                await self._news.wait()
                self._news.clear()
                yield self.answer
                await asyncio.wait([self._task], timeout=EVERY)
        finally:
            await self._end()
        yield self.answer

    def stop(self) -> None:
        """Asks for no more; the loop over `updates` ends with what there is."""
        if self._task is not None and not self._task.done():
            self.answer.stopped = True
            self._task.cancel()

    async def _end(self) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _read(self) -> None:
        begun = time.perf_counter()
        try:
            async for chunk in await self._reading():
                self._take(chunk, time.perf_counter() - begun)
        except MmspecError as refusal:
            self.answer.refusal = str(refusal)
        finally:
            self._news.set()

    def _take(self, chunk: Any, elapsed: float) -> None:
        answer = self.answer
        text = "".join(choice.delta.content or "" for choice in chunk.choices)
        tokens = max(answer.tokens, chunk.usage.completion_tokens if chunk.usage else 0)
        # A server that counts only at the end does so in a chunk of its own, which is no token's time.
        if text or (chunk.choices and tokens > answer.tokens):
            answer.ttft = elapsed if answer.ttft is None else answer.ttft
            answer.seconds = elapsed - answer.ttft
            self._news.set()
        answer.text += text
        answer.tokens = tokens
        answer.statistics = (chunk.model_extra or {}).get("mmspec", answer.statistics)


class Running:
    """The answer that each open page waits for."""

    def __init__(self) -> None:
        self._asking: dict[str, Asking] = {}

    @contextlib.contextmanager
    def only(self, session: str, asking: Asking) -> Any:
        """`asking` is the page's one request for as long as the block lasts."""
        self.stop(session)
        self._asking[session] = asking
        try:
            yield
        finally:
            if self._asking.get(session) is asking:
                del self._asking[session]

    def stop(self, session: str) -> None:
        """Stops what a page waits for, if anything."""
        if asking := self._asking.get(session):
            asking.stop()
