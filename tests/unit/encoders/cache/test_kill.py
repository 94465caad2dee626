"""kill -9 while writing: every row of the index names a whole file, and no reader ever gets a wrong entry."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mmspec.encoders.cache import FolderTier
from tests.unit.encoders.cache import killed, state
from tests.unit.encoders.cache.entries import is_right, key

ROUNDS = 100
MODULE = [sys.executable, "-m", "tests.unit.encoders.cache.killed"]


@pytest.mark.slow
def test_two_writers_killed_at_random_moments(tmp_path: Path) -> None:
    draw = random.Random(4)
    folder = tmp_path / "cache"
    reader = FolderTier(folder, killed.LIMIT)
    forker = subprocess.Popen(
        [*MODULE, "rounds", str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert forker.stdin is not None and forker.stdout is not None
    for number in range(10 * ROUNDS):
        if number >= ROUNDS and reader.totals().evictions > ROUNDS:
            break  # on a busy machine the writers get less done in a round, and more rounds are needed
        print(number, file=forker.stdin, flush=True)
        writers = [int(word) for word in forker.stdout.readline().split()]
        _read_until(reader, time.monotonic() + draw.uniform(0.005, 0.06), draw)
        for writer in writers:
            os.kill(writer, signal.SIGKILL)
        assert forker.stdout.readline() == "0\n", "a writer read a wrong entry"
        assert not (found := state.faults(folder, killed.LIMIT, killed.NUMBERS)), found
    forker.stdin.close()
    assert forker.wait() == 0
    assert reader.totals().evictions > ROUNDS  # the writers did get to work


@pytest.mark.slow
@pytest.mark.parametrize("work", killed.WORK)
def test_a_process_killed_at_each_line_that_it_runs(tmp_path: Path, work: str) -> None:
    done = subprocess.run([*MODULE, work, str(tmp_path)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50  # moments


def _read_until(reader: FolderTier, end: float, draw: random.Random) -> None:
    while time.monotonic() < end:
        number = draw.randrange(killed.NUMBERS)
        found = reader.get(key(number))
        assert found is None or is_right(number, found)
