"""The tests' side of `tests.engine.worker`: one process for each model runner, started when first needed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import IO

from tests.engine.jobs import Job, Outcome
from tests.engine.runners import runner_environment


class EngineWorker:
    """Sends jobs to a worker process; its log goes to a file that a failure names."""

    def __init__(self, runner: str, log: Path) -> None:
        self.runner = runner
        self._log_path = log
        self._log = log.open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.engine.worker", runner],
            env=runner_environment(runner),
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def run(self, job: Job) -> Outcome:
        """Runs one job and returns its outcome.

        Raises:
            RuntimeError: the worker process died.
        """
        print(json.dumps(job.to_json()), file=self._pipe(self._process.stdin), flush=True)
        line = self._pipe(self._process.stdout).readline()
        if not line:
            raise RuntimeError(
                f"the {self.runner} engine worker died; the end of {self._log_path}:\n{self.log_tail()}"
            )
        return Outcome.from_json(json.loads(line))

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self._log_path.read_text(errors="replace").splitlines()[-lines:])

    def close(self) -> None:
        self._pipe(self._process.stdin).close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe
