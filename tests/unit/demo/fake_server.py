"""A server that speaks the OpenAI API and answers from a script."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"prompt_tokens": 5, "total_tokens": 5}


def chunk(text: str | None, tokens: int, **more: Any) -> dict[str, Any]:
    """A chunk as vLLM sends it with continuous usage."""
    choices = [] if text is None else [{"index": 0, "delta": {"content": text}, "finish_reason": None}]
    known = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**known, "choices": choices, "usage": {**USAGE, "completion_tokens": tokens}, **more}


class Script:
    """What the server does, and what became of it.

    Attributes:
        chunks: of every answer; a number among them is a pause in seconds.
        refusal: status and error in place of an answer.
        mmspec: what `/mmspec` says; None where there is no such thing.
        bodies: of the requests for answers.
        broken: how many clients went away before their answer's end.
    """

    def __init__(self) -> None:
        self.chunks: list[Any] = []
        self.refusal: tuple[int, dict[str, Any]] | None = None
        self.mmspec: dict[str, Any] | None = None
        self.bodies: list[dict[str, Any]] = []
        self.broken = 0


@contextmanager
def fake_server(script: Script) -> Iterator[str]:
    """Serves until the block ends; gives the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/mmspec":
                self._json(404 if script.mmspec is None else 200, script.mmspec or {})
            else:
                self._json(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})

        def do_POST(self) -> None:
            script.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            if script.refusal is not None:
                status, error = script.refusal
                self._json(status, {"error": error})
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            try:
                self._stream()
            except OSError:
                script.broken += 1

        def _stream(self) -> None:
            for part in script.chunks:
                if isinstance(part, int | float):
                    time.sleep(part)
                else:
                    self.wfile.write(f"data: {json.dumps(part)}\n\n".encode())
                    self.wfile.flush()
            self.wfile.write(b"data: [DONE]\n\n")

        def _json(self, status: int, value: Any) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
