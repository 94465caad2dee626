"""The server that the page talks to, through its OpenAI API."""

import asyncio
import json
import os
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import openai

from mmspec.errors import MmspecError

KEY_VARIABLE = "MMSPEC_API_KEY"

_CONNECT = 5.0  # seconds; an answer may take as long as it likes


@dataclass(frozen=True)
class Offer:
    """What a server can do.

    Attributes:
        statistics: it is one with mmspec, and says where an answer's tokens came from.
        draft: its drafting method; None where it drafts nothing or does not say.
        keep: the share of visual tokens that it keeps unasked; None where requests cannot ask for pruning.
        crops: its model sees the middle square of a picture only.
    """

    model: str
    statistics: bool = False
    draft: str | None = None
    keep: float | None = None
    crops: bool = False


@dataclass(frozen=True)
class Sampling:
    """How an answer is to be drawn; None leaves it to the server."""

    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 256
    seed: int | None = None
    keep: float | None = None
    draft: bool = True


class Server:
    """A running server.

    Args:
        url: without `/v1`.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._client = openai.AsyncOpenAI(
            base_url=f"{self.url}/v1",
            api_key=os.environ.get(KEY_VARIABLE) or "none",
            timeout=openai.Timeout(None, connect=_CONNECT),
            max_retries=0,
        )

    async def offer(self) -> Offer:
        """What the server can do.

        Raises:
            MmspecError: it does not answer, or refuses.
        """
        try:
            models = await self._client.models.list(timeout=_CONNECT)
            told = await asyncio.to_thread(_told, f"{self.url}/mmspec")
        except (openai.OpenAIError, OSError, ValueError) as error:
            raise self._refusal(error) from None
        return read_offer(models.data[0].id, told)

    async def read(
        self, offer: Offer, messages: list[dict[str, Any]], sampling: Sampling
    ) -> AsyncIterator[Any]:
        """Asks; gives the chunks of the answer.

        Raises:
            MmspecError: the server does not answer, refuses, or breaks off.
        """
        try:
            stream = await self._client.chat.completions.create(**request_body(offer, messages, sampling))
        except openai.OpenAIError as error:
            raise self._refusal(error) from None
        return self._chunks(stream)

    async def _chunks(self, stream: Any) -> AsyncIterator[Any]:
        try:
            async with stream:
                async for chunk in stream:
                    yield chunk
        except Exception as error:  # the connection's own errors are not the client's
            raise self._refusal(error) from None

    def _refusal(self, error: Exception) -> MmspecError:
        match error:
            case openai.AuthenticationError():
                return MmspecError(f"The server at {self.url} wants an API key; set {KEY_VARIABLE}.")
            case openai.APIStatusError() | openai.APIError(body=dict()):
                return MmspecError(f"The server refused: {_sentence(error)}")
            case _:
                return MmspecError(f"The server at {self.url} does not answer, or broke off; is it running?")


def read_offer(model: str, told: dict[str, Any] | None) -> Offer:
    """The offer of a server of `model` whose `/mmspec` says `told`; None where there is no such thing."""
    if told is None:
        return Offer(model)
    fastv = told.get("fastv")
    return Offer(
        model,
        statistics=bool(told.get("statistics")),
        draft=told.get("draft"),
        keep=fastv["keep"] if fastv else None,
        crops=told.get("model_type") == "llava",
    )


def request_body(offer: Offer, messages: list[dict[str, Any]], sampling: Sampling) -> dict[str, Any]:
    """The arguments of the OpenAI client for a streamed answer, asking only for what the server offers."""
    extra: dict[str, Any] = {}
    if offer.statistics:
        extra["mmspec_stats"] = ["tokens", "kept"]
    if offer.keep is not None and sampling.keep is not None:
        extra["fastv_keep"] = sampling.keep
    if offer.draft is not None and not sampling.draft:
        extra["mmspec_draft"] = False
    return {
        "model": offer.model,
        "messages": messages,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "seed": sampling.seed if sampling.seed is not None else openai.NOT_GIVEN,
        "stream": True,
        # The second is vLLM's: how many tokens there are, with each chunk.
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "extra_body": {"vllm_xargs": extra} if extra else None,
    }


def _sentence(error: openai.APIError) -> str:
    """The server's own words, as one line that ends like a sentence."""
    body: dict[str, Any] = error.body if isinstance(error.body, dict) else {}
    inner = body["error"] if isinstance(body.get("error"), dict) else body
    text = " ".join(str(inner.get("message") or error.message).split())
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _told(address: str) -> Any:
    """What a server with mmspec says that it offers; None where there is no such thing."""
    try:
        with urllib.request.urlopen(address, timeout=_CONNECT) as response:
            return json.load(response)
    except urllib.error.HTTPError:
        return None
