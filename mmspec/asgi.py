"""What the ASGI middleware of mmspec shares, for `vllm serve --middleware`."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class HttpMiddleware(ABC):
    """Wraps an application's HTTP requests; everything else passes unchanged."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self.respond(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    @abstractmethod
    async def respond(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answers one request, by way of the application or without it."""
