"""A server of the demo's own: its start, its end, and what is said when it dies."""

import sys
from pathlib import Path
from typing import Any

import pytest

from mmspec import MmspecError, server_process
from mmspec.demo.started import Started

SERVER = """
import http.server, sys
print("listening")
port = int(sys.argv[sys.argv.index("--port") + 1])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Starts a script in the place of `mmspec serve`."""
    real = server_process.subprocess.Popen
    running = []

    def start(script: str) -> Started:
        def popen(command: list[str], **options: Any) -> Any:
            assert command[:5] == [sys.executable, "-m", "mmspec.cli.main", "serve", "pocket"]
            return real([sys.executable, "-c", script, *command[5:]], **options)

        monkeypatch.setattr(server_process.subprocess, "Popen", popen)
        running.append(Started("pocket", tmp_path / "logs" / "server.log", ["--draft", "none"]))
        return running[-1]

    yield start
    for one in running:
        one.close()


def test_a_server_is_ready_when_it_answers(begin: Any) -> None:
    server = begin(SERVER)

    assert server.starting
    while not server.answers():
        server.require_alive()
    assert not server.starting and server.answers()

    server.close()
    server.close()
    with pytest.raises(MmspecError, match="has ended"):
        server.require_alive()


def test_its_last_line_is_told_when_it_dies(begin: Any) -> None:
    server = begin(
        "import sys; print('loading'); print('mmspec: no such model\\n', file=sys.stderr); sys.exit(3)"
    )
    server.process.wait()

    with pytest.raises(
        MmspecError, match=r"ended \(exit code 3\): mmspec: no such model; its log is .*server.log"
    ):
        server.require_alive()
