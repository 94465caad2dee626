"""An engine under load with eviction in every tier and aborts mixed in: no wrong answer, and nothing grows.

Small by default. The long form, 2,000 requests over 200 pictures:

    MMSPEC_SOAK_REQUESTS=2000 MMSPEC_SOAK_PICTURES=200 pytest tests/engine/test_feature_cache_soak.py
"""

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from tests.conftest import Checkpoints
from tests.engine.feature_cache import (
    CachingEngine,
    Starting,
    answer_of,
    caching_engine,
    prompt_of,
)
from tests.oracle import Oracle
from tests.unit.encoders.cache.redis_server import Server

pytestmark = [pytest.mark.engine, pytest.mark.slow]

FAMILY = "qwen2_5_vl"
REQUESTS = int(os.environ.get("MMSPEC_SOAK_REQUESTS", "60"))
PICTURES = int(os.environ.get("MMSPEC_SOAK_PICTURES", "12"))
ENTRY = 20_480  # bytes of a picture's features in whole blocks: 64 rows of 64 float32 numbers, and a header
HOST, DISK = PICTURES // 4 * ENTRY, PICTURES // 2 * ENTRY
TOKENS = 8  # two of 200 pictures have the same answer once in fifty times
LONG = 2000  # requests, from which memory tells: features leaked by each would be 21 MB behind the warm-up
GROWTH = 12 * 1024**2  # of memory, after warm-up
FEW_FILES = 8


def picture(number: int) -> Image.Image:
    """Pictures that differ from each other in a 4 × 4 board of cells."""
    drawn = Image.new("RGB", (224, 224), "white")
    for cell in range(16):
        if (number * 0x9E37 + 1) >> cell & 1:
            left, top = 56 * (cell % 4), 56 * (cell // 4)
            colour = ("red", "blue", "green", "black")[number % 4]
            ImageDraw.Draw(drawn).rectangle((left, top, left + 55, top + 55), fill=colour)
    return drawn


@pytest.fixture(scope="module")
def expected(oracles: Callable[[str], Oracle]) -> Callable[[int], list[int]]:
    oracle = oracles(FAMILY)

    @cache
    def answer(number: int) -> list[int]:
        return answer_of(oracle, picture(number), tokens=TOKENS)

    return answer


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A Redis server that evicts, too; no remote tier where none is installed."""
    if shutil.which("redis-server") is None:
        yield {}
        return
    folder = tmp_path / "redis"
    folder.mkdir()
    server = Server(folder)
    try:
        # What an empty server takes, its buffers, and room for half of the pictures.
        room = asked(server, "info", "memory")["used_memory"] + 2**19 + PICTURES // 2 * ENTRY
        asked(server, "config", "set", "maxmemory", str(room))
        asked(server, "config", "set", "maxmemory-policy", "allkeys-lru")
        yield {"remote": server.url}
        if PICTURES >= 100:  # fewer fit into the buffers' room
            assert asked(server, "info", "stats")["evicted_keys"] > 0
    finally:
        server.stop()


def asked(server: Server, *command: str) -> dict[str, int]:
    """The numbers in a Redis server's answer."""
    done = subprocess.run(
        ["redis-cli", "-p", str(server.port), *command], check=True, capture_output=True, text=True
    )
    pairs = (line.partition(":") for line in done.stdout.splitlines())
    return {name: int(value) for name, _, value in pairs if value.strip().isdigit()}


def test_a_soak(
    vllm_engine: Starting,
    tiny: Checkpoints,
    expected: Callable[[int], list[int]],
    remote: dict[str, Any],
    tmp_path: Path,
) -> None:
    options = {"directory": str(tmp_path / "disk"), "disk_size": f"{DISK}B", "memory_size": f"{HOST}B"}
    answers = {tuple(expected(number)) for number in range(PICTURES)}
    assert len(answers) > PICTURES // 2, "a wrong picture would go unnoticed"
    with caching_engine(vllm_engine, tiny[FAMILY], options | remote) as engine:
        engine.max_tokens = TOKENS
        load = Load(engine, expected)
        load.run(REQUESTS // 3)  # warm-up
        before = load.measure()
        load.run(REQUESTS - REQUESTS // 3)
        after = load.measure()
        tiers = {tier["name"]: tier for tier in engine.core.scheduler.ec_connector._store.stats()}
    mebibytes = [round(one.memory / 2**20) for one in (before, after)]
    print(
        f"{REQUESTS} requests, {load.aborted} given up, {len(load.wrong)} wrong; MiB of memory {mebibytes},"
    )
    print(f"open files {[before.files, after.files]}, {tiers}")  # pytest -s shows it

    assert load.wrong == [] and load.aborted >= REQUESTS // 10
    assert after.files <= before.files + FEW_FILES
    assert REQUESTS < LONG or after.memory <= before.memory + GROWTH
    assert after.kept == before.kept == (0, 0, 0), "lookups, what is held, requests that are reported on"
    for name in ("host", "disk"):
        assert tiers[name]["evictions"] > 0 and tiers[name]["hits"] > 0 and not tiers[name]["errors"]
        assert tiers[name]["bytes"] <= tiers[name]["limit"]
    if remote:
        assert tiers["remote"]["hits"] > 0 and not tiers["remote"]["errors"]
    assert not list((tmp_path / "disk" / "held").iterdir()) and not list(
        (tmp_path / "disk" / "parts").iterdir()
    )


class Measured:
    def __init__(self, engine: CachingEngine) -> None:
        engine.settle()
        scheduler = engine.core.scheduler
        side = scheduler.ec_connector._scheduler
        side._lookups._threads.submit(lambda: None).result(30)  # what is let go of, is by now
        self.kept = len(side._lookups._lookups), len(side._held), len(scheduler._reported)
        self.files = len(os.listdir("/proc/self/fd"))
        pages = Path("/proc/self/statm").read_text().split()
        self.memory = (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")


class Load:
    """Requests about popular pictures and rare ones, a few at a time, some of which are given up on the way."""

    def __init__(self, engine: CachingEngine, expected: Callable[[int], list[int]]) -> None:
        self._engine, self._expected = engine, expected
        self._draw = random.Random(0)
        self._asked = 0
        self.aborted = 0
        self.wrong: list[int] = []

    def measure(self) -> Measured:
        return Measured(self._engine)

    def run(self, count: int) -> None:
        end = self._asked + count
        while self._asked < end:
            numbers = [int(PICTURES * self._draw.random() ** 1.5) for _ in range(self._draw.randint(1, 4))]
            if self._draw.random() < 0.3:
                self._give_up(numbers)
            else:
                given = self._engine.ask(*[prompt_of(picture(number)) for number in numbers])
                right = [self._expected(number) for number in numbers]
                self.wrong += [n for n, one, due in zip(numbers, given, right, strict=True) if one != due]
            self._asked += len(numbers)

    def _give_up(self, numbers: list[int]) -> None:
        """Aborts after some steps; one of the requests is left to answer, beside those that end."""
        llm, first = self._engine.llm.llm_engine, numbers.pop()
        for place, number in enumerate(numbers):
            llm.add_request(f"up-{self._asked + place}", prompt_of(picture(number)), self._engine.sampling)
        for _ in range(self._draw.randint(0, 4)):
            llm.step()
        llm.abort_request([f"up-{self._asked + place}" for place in range(len(numbers))])
        self.aborted += len(numbers)
        if self._engine.ask(prompt_of(picture(first))) != [self._expected(first)]:
            self.wrong.append(first)
