"""Tiers that fail while an engine serves: every answer stays right, trouble is said once, and they come back."""

import re
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from PIL.Image import Image

from mmspec.encoders.cache import TieredStore
from tests.conftest import Checkpoints
from tests.engine.feature_cache import (
    CachingEngine,
    Starting,
    answer_of,
    caching_engine,
    large_picture,
    prompt_of,
)
from tests.oracle import Oracle
from tests.small_disk import SmallDisk, fill
from tests.unit.encoders.cache.clock import messages
from tests.unit.encoders.cache.redis_server import Server

pytestmark = [pytest.mark.engine, pytest.mark.slow]

FAMILY = "qwen2_5_vl"
RETRY_SECONDS = 0.2


@pytest.fixture(autouse=True)
def soon_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiers that failed, of engines that start in this test."""
    monkeypatch.setattr(
        "mmspec.encoders.cache.opening.TieredStore", partial(TieredStore, retry_seconds=RETRY_SECONDS)
    )


class Asking:
    """Asks an engine about pictures, one at a time; vLLM's own cache then holds the last one only."""

    def __init__(self, engine: CachingEngine, oracle: Oracle) -> None:
        self._engine, self._oracle = engine, oracle

    def __call__(self, *numbers: int) -> list[str | None]:
        """The tier that each picture came from, None for one that was encoded; the answers are right."""
        tiers = []
        for number in numbers:
            picture = large_picture(number)
            assert self._engine.ask(prompt_of(picture)) == [self.expected(picture)], number
            report = self._engine.reports[0]
            assert self._engine.encoded() == report["misses"]
            tiers.append(report["tier"])
            self._engine.settle()
        return tiers

    def expected(self, *pictures: Image) -> list[int]:
        return answer_of(self._oracle, *pictures, tokens=self._engine.max_tokens)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Beginnings of what was said of tiers since the last call."""
    found = [
        re.split(" and | before ", message.removeprefix("encoder cache: "))[0] for message in messages(caplog)
    ]
    caplog.clear()
    return found


def test_a_disk_that_is_full_then_may_only_be_read(
    vllm_engine: Starting,
    tiny: Checkpoints,
    oracles: Callable[[str], Oracle],
    small_disk: SmallDisk,
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = small_disk(4)
    failed, again = "writing the disk tier failed", "writing the disk tier works again"
    with caching_engine(vllm_engine, tiny[FAMILY], {"directory": str(disk / "cache")}) as engine:
        ask = Asking(engine, oracles(FAMILY))
        (disk_level,) = engine.core.scheduler.ec_connector._store._levels
        _a_picture_that_is_there_twice_is_loaded_once(engine, ask)

        disk_level.tier.purge()
        filler = fill(disk)
        assert ask(2, 3, 4, 2, 3, 4) == [None] * 6
        assert sorted(said(caplog)) == [f"no room left in {disk / 'cache'}", failed]
        filler.unlink()
        time.sleep(RETRY_SECONDS)
        assert ask(2, 3, 4, 2, 3, 4) == [None, None, None, "disk", "disk", "disk"]
        assert said(caplog) == [again]

        disk_level.tier.close()  # the index, which would be open for writing
        small_disk(read_only=True)
        assert ask(2, 5, 3, 6, 4, 5) == ["disk", None, "disk", None, "disk", None]
        assert said(caplog) == [failed]
        small_disk(read_only=False)
        time.sleep(RETRY_SECONDS)
        assert ask(6, 5, 6, 5) == [None, None, "disk", "disk"]
        assert said(caplog) == [again]


def _a_picture_that_is_there_twice_is_loaded_once(engine: CachingEngine, ask: Asking) -> None:
    picture = large_picture(0)
    prompts = [prompt_of(picture, picture), prompt_of(picture)]
    expected = [ask.expected(picture, picture), ask.expected(picture)]
    assert engine.ask(*prompts) == expected and engine.encoded() == 1
    engine.settle()
    assert ask(1) == [None]
    assert engine.ask(*prompts) == expected and engine.encoded() == 0
    assert engine.reports[0] == {"hits": 2, "misses": 0, "tier": "disk"}


def test_a_redis_server_that_is_stopped_and_comes_back(
    vllm_engine: Starting,
    tiny: Checkpoints,
    oracles: Callable[[str], Oracle],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Host memory has room for two pictures, so that others come from the server."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed (Debian: apt install redis-server)")
    server = Server(tmp_path)
    options = {"remote": server.url, "memory_size": "45kB"}
    down = ["reading the remote tier failed", "writing the remote tier failed"]
    again = ["reading the remote tier works again", "writing the remote tier works again"]
    try:
        with caching_engine(vllm_engine, tiny[FAMILY], options) as engine:
            assert Asking(engine, oracles(FAMILY))(0, 1, 2, 3) == [None] * 4
        with caching_engine(vllm_engine, tiny[FAMILY], options) as engine:
            ask = Asking(engine, oracles(FAMILY))
            assert ask(0, 1, 2, 3, 0) == ["remote"] * 5

            server.stop()
            assert ask(1, 2, 3, 2, 3, 0) == [None, None, None, "host", "host", None]
            assert sorted(said(caplog)) == down

            server.start()  # empty
            time.sleep(RETRY_SECONDS)
            assert ask(4, 5, 6, 7) == [None] * 4
            assert ask(4, 5, 6) == ["remote"] * 3
            assert sorted(said(caplog)) == again

            server.process.send_signal(signal.SIGSTOP)
            started = time.monotonic()
            assert ask(7, 1) == [None, None]
            assert time.monotonic() - started < 20
            server.process.send_signal(signal.SIGCONT)
            time.sleep(RETRY_SECONDS)
            assert ask(4, 5) == ["remote"] * 2
            assert sorted(said(caplog)) == [down[0], again[0], down[1]]  # nothing was to be written since
    finally:
        server.stop()
