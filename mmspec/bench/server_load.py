"""Many requests at once against a running server, some of them aborted: what became of them, and what stayed behind."""

import asyncio
import re
import time
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmspec.pictures import url_part, user_message

_QUIET_SECONDS = 120.0


@dataclass
class Round:
    """What became of requests that came at once.

    Attributes:
        finished, aborted: how many; those that were aborted had no error.
        errors: of the others, what the client was told.
        answers: of those that finished, the different answers to each question, by its number.
    """

    finished: int = 0
    aborted: int = 0
    errors: list[str] = field(default_factory=list)
    answers: dict[int, set[str]] = field(default_factory=dict)
    seconds: float = 0.0


class Load:
    """Questions about a few pictures, greedy, one picture each.

    Args:
        url: of the server, without `/v1`.
        pictures: files.
        aborted: share of the requests of a round that the client gives up: every other one of these before its
            first token, the rest after it.
    """

    def __init__(
        self,
        url: str,
        model: str,
        pictures: Sequence[bytes],
        *,
        api_key: str = "none",
        max_tokens: int = 32,
        aborted: float = 0.1,
        prompt: str = "Describe the picture.",
    ) -> None:
        self._url, self._key, self._aborted = url, api_key, aborted
        self._asked = [_question(picture, prompt, model, max_tokens) for picture in pictures]

    def alone(self) -> list[str]:
        """The answers to all questions, asked one after another."""

        async def ask() -> list[str]:
            async with self._client() as client:
                return [await self._answer(client, number) for number in range(len(self._asked))]

        return asyncio.run(ask())

    def at_once(self, requests: int) -> Round:
        """Asks `requests` questions at once, each picture as often as the others."""
        return asyncio.run(self._at_once(requests))

    async def _at_once(self, requests: int) -> Round:
        result, started = Round(), time.monotonic()
        async with self._client() as client:
            await asyncio.gather(*(self._one(client, number, result) for number in range(requests)))
        result.seconds = time.monotonic() - started
        return result

    async def _one(self, client: Any, number: int, result: Round) -> None:
        question = number % len(self._asked)
        # Spread evenly over the requests, and so over the pictures.
        before, through = int(number * self._aborted), int((number + 1) * self._aborted)
        try:
            if through > before:
                await self._give_up(client, question, early=through % 2 == 1)
                result.aborted += 1
            else:
                answer = await self._answer(client, question)
                result.finished += 1
                result.answers.setdefault(question, set()).add(answer)
        except Exception as error:  # of the client's, of the network's: to be counted
            result.errors.append(f"{type(error).__name__}: {error}")

    async def _answer(self, client: Any, question: int) -> str:
        answer = await client.chat.completions.create(**self._asked[question])
        return answer.choices[0].message.content or ""

    async def _give_up(self, client: Any, question: int, *, early: bool) -> None:
        asking = asyncio.ensure_future(client.chat.completions.create(**self._asked[question], stream=True))
        if early:
            await asyncio.sleep(0.2)  # long enough for the request to be on its way
            if not asking.done():
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                return
        stream = await asking
        async for _ in stream:
            break
        await stream.close()

    def _client(self) -> Any:
        from openai import AsyncOpenAI

        return AsyncOpenAI(base_url=f"{self._url}/v1", api_key=self._key, timeout=1800, max_retries=0)


def wait_until_quiet(url: str) -> None:
    """Returns when the server runs no request any more.

    Raises:
        TimeoutError: it goes on with some, such as those that a client gave up.
    """
    end = time.monotonic() + _QUIET_SECONDS
    while sum(figures(url, ("vllm:num_requests_running", "vllm:num_requests_waiting")).values()):
        if time.monotonic() > end:
            raise TimeoutError(f"{url} still runs requests after {_QUIET_SECONDS:.0f} s")
        time.sleep(0.2)


def figures(url: str, names: Iterable[str]) -> dict[str, float]:
    """Metrics of a server by name, summed over their labels."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=120) as answer:
        page = answer.read().decode()
    rows = re.findall(r"^([\w:]+)(?:\{[^}]*\})? (\S+)", page, re.MULTILINE)
    return {name: sum(float(value) for found, value in rows if found == name) for name in names}


def resident_mib(pid: int) -> float:
    """Memory of a process and of all that it started, in MiB; what they share counts for each."""
    return sum(one.memory_info().rss for one in _family(pid)) / 2**20


def cpu_seconds(pid: int) -> float:
    """Processor time that they have used."""
    return sum(sum(one.cpu_times()[:2]) for one in _family(pid))


def _family(pid: int) -> list[Any]:
    import psutil

    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def _question(picture: bytes, prompt: str, model: str, max_tokens: int) -> dict[str, Any]:
    messages = user_message(prompt, [url_part(picture)])
    return {"model": model, "messages": messages, "temperature": 0, "max_tokens": max_tokens}
