"""A server in a process of its own on this machine."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from mmspec.errors import MmspecError


def free_port() -> int:
    """A port of this machine that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class ServerProcess:
    """A Python module that serves HTTP, on a free port of this machine, its output in a file.

    Args:
        command: the module and its arguments; it must take `--host` and `--port`, which are added.
        log: the file for its output.
        environment: variables besides those of this process.

    Attributes:
        url: where it will answer.
        process: as `subprocess` has it.
    """

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        port = free_port()
        self.url, self.log = f"http://127.0.0.1:{port}", log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command, "--host", "127.0.0.1", "--port", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
            )

    def answers(self, path: str = "/health") -> bool:
        """Whether it answers there now."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=5):
                return True
        except OSError:
            return False

    def wait(self, seconds: float, path: str = "/health") -> None:
        """Returns as soon as it answers.

        Raises:
            MmspecError: it has ended, or does not answer in time; with the end of its log.
        """
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            if self.answers(path):
                return
            time.sleep(0.5)
        how = "does not answer" if self.process.poll() is None else "has ended"
        raise MmspecError(f"the server {how}:\n{self.tail()}")

    def tail(self, lines: int = 30) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def close(self, seconds: float = 30) -> None:
        """Ends it, by force if it takes longer."""
        if self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
