"""A server of the demo's own, where none is named: it starts with the demo and ends with it."""

import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from mmspec.errors import MmspecError

_END_SECONDS = 30


class Started:
    """`mmspec serve` in a process of its own, on a free port of this machine, its output in a file.

    Attributes:
        url: where it will answer.
        log: its output.
        starting: it has not answered yet.
    """

    def __init__(self, model: str, log: Path, arguments: Sequence[str] = ()) -> None:
        port = _free_port()
        self.url, self.log, self.starting = f"http://127.0.0.1:{port}", log, True
        command = [sys.executable, "-m", "mmspec.cli.main", "serve", model]
        command += ["--host", "127.0.0.1", "--port", str(port), *arguments]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def require_alive(self) -> None:
        """Raises MmspecError, with the last line of its log, when the server has ended."""
        if (code := self._process.poll()) is not None:
            lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
            last = lines[-1] if lines else "it said nothing"
            raise MmspecError(f"The server has ended (exit code {code}): {last}; its log is {self.log}.")

    def answers(self) -> bool:
        """Whether it is ready; it stays so."""
        if self.starting:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    self.starting = False
            except OSError:
                return False
        return True

    def close(self) -> None:
        """Ends it, by force if it takes too long."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
