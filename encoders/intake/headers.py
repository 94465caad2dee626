"""Says over HTTP what the intake did: a header of the response, streamed or not."""

import json

from mmspec.asgi import HttpMiddleware, Message, Receive, Send
from mmspec.encoders.intake.notes import gathered

HEADER = "x-mmspec-intake"
_MOST_BYTES = 4000  # clients take headers of some kilobytes


class IntakeHeader(HttpMiddleware):
    """ASGI middleware: adds the notes as a JSON list of sentences, if there are any.

    Pictures are taken in before a response begins, so a stream's header has them, too.
    """

    async def respond(self, scope: Message, receive: Receive, send: Send) -> None:
        with gathered() as notes:

            async def send_with_notes(message: Message) -> None:
                lines = [line for conversation in notes for line in conversation]
                if message["type"] == "http.response.start" and lines:
                    header = (HEADER.encode(), encode_notes(lines))
                    message = {**message, "headers": [*message.get("headers", ()), header]}
                await send(message)

            await self._app(scope, receive, send_with_notes)


def encode_notes(lines: list[str]) -> bytes:
    """The notes as a header's value; the last ones are counted only when all would be too long."""
    for kept in range(len(lines), -1, -1):
        shown = lines[:kept] + ([f"and {len(lines) - kept} more"] if kept < len(lines) else [])
        value = json.dumps(shown).encode("ascii")
        if len(value) <= _MOST_BYTES:
            break
    return value
