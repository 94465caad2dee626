"""A server of the demo's own, where none is named: it starts with the demo and ends with it."""

from collections.abc import Sequence
from pathlib import Path

from mmspec.errors import MmspecError
from mmspec.server_process import ServerProcess


class Started(ServerProcess):
    """`mmspec serve` in a process of its own.

    Attributes:
        starting: it has not answered yet.
    """

    def __init__(self, model: str, log: Path, arguments: Sequence[str] = ()) -> None:
        super().__init__(["mmspec.cli.main", "serve", model, *arguments], log)
        self.starting = True

    def require_alive(self) -> None:
        """Raises MmspecError, with the last line of its log, when the server has ended."""
        if (code := self.process.poll()) is not None:
            lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
            last = lines[-1] if lines else "it said nothing"
            raise MmspecError(f"The server has ended (exit code {code}): {last}; its log is {self.log}.")

    def answers(self, path: str = "/health") -> bool:
        """Whether it is ready; it stays so."""
        if self.starting and super().answers(path):
            self.starting = False
        return not self.starting
