"""Host memory: shared by an engine's processes, and gone with the last of them."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mmspec.encoders.cache import HostTier
from mmspec.errors import MmspecError
from tests.unit.encoders.cache.entries import entry, is_right, key

LIMIT = 10**6
OTHER = """
import sys
from pathlib import Path
from mmspec.encoders.cache import HostTier
from tests.unit.encoders.cache.entries import entry, is_right, key
tier = HostTier(sys.argv[2], 10**6, Path(sys.argv[1]))
print(is_right(1, tier.get(key(1))), flush=True)
tier.put(key(2), entry(2))
print("stored", flush=True)
sys.stdin.read()
tier.close()
"""


def folders(memory: Path) -> list[str]:
    return sorted(path.name for path in (memory / f"mmspec-{os.getuid()}").iterdir() if path.is_dir())


def other_process(memory: Path, engine: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", OTHER, str(memory), engine],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_processes_of_an_engine_share_it(tmp_path: Path) -> None:
    tier = HostTier("engine", LIMIT, tmp_path)
    tier.put(key(1), entry(1))
    other = other_process(tmp_path, "engine")
    assert other.communicate()[0].split() == ["True", "stored"]

    assert is_right(2, tier.get(key(2)))  # the other's end did not take the folder away
    tier.close()
    assert folders(tmp_path) == []


def test_another_engine_has_its_own(tmp_path: Path) -> None:
    tier, other = HostTier("engine", LIMIT, tmp_path), HostTier("../engine", LIMIT, tmp_path)
    tier.put(key(1), entry(1))

    assert other.get(key(1)) is None
    assert len(folders(tmp_path)) == 2
    tier.close()
    other.close()


def test_memory_of_a_killed_engine_is_given_back(tmp_path: Path) -> None:
    killed = other_process(tmp_path, "killed")
    assert killed.stdout is not None
    assert [killed.stdout.readline() for _ in range(2)] == ["False\n", "stored\n"]
    tier = HostTier("engine", LIMIT, tmp_path)
    assert len(folders(tmp_path)) == 2  # it lives
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    later = HostTier("later", LIMIT, tmp_path)

    assert len(folders(tmp_path)) == 2
    tier.close()
    later.close()
    assert folders(tmp_path) == []


def test_a_file_that_is_cut_short_while_it_is_mapped_is_a_miss(tmp_path: Path) -> None:
    tier = HostTier("engine", LIMIT, tmp_path)
    tier.put(key(1), entry(1, 2000))
    assert is_right(1, tier.get(key(1)), 2000)
    (file,) = (tier.folder / "entries").iterdir()
    os.truncate(file, 5000)  # reading behind that would end the process

    assert tier.get(key(1)) is None
    tier.close()


def test_a_file_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    tier, other = HostTier("engine", LIMIT, tmp_path), HostTier("engine", LIMIT, tmp_path)
    tier.put(key(1), entry(1))
    assert is_right(1, other.get(key(1)))
    tier.purge()
    assert other.get(key(1)) is None
    tier.put(key(1), entry(2))  # the tier does not look at what it keeps

    assert is_right(2, other.get(key(1)))
    tier.close()
    other.close()


def test_what_was_evicted_does_not_stay_mapped(tmp_path: Path) -> None:
    tier, other = HostTier("engine", LIMIT, tmp_path), HostTier("engine", LIMIT, tmp_path)
    for number in range(300):
        tier.put(key(number), entry(number, 2000))
        if number % 10 == 0:
            assert is_right(number, other.get(key(number)), 2000)
    files = len(os.listdir(tier.folder / "entries"))

    assert _mapped(tmp_path) <= files + 4
    tier.close()
    other.close()
    assert _mapped(tmp_path) == 0


def _mapped(folder: Path) -> int:
    return sum(str(folder) in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_it_takes_no_more_than_there_is(
    small_disk: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    memory = small_disk(20)
    tier = HostTier("engine", 50 * LIMIT, memory)

    assert "memory_size asks for 50 MB" in caplog.text and "--shm-size" in caplog.text
    for number in range(60):
        assert tier.put(key(number), entry(0, 60_000))  # a megabyte each
    assert 10 < tier.totals().entries < 20
    again = HostTier("engine", 50 * LIMIT, memory)
    assert again.limit == pytest.approx(tier.limit, rel=0.3)  # what the engine holds itself counts as room


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    (tmp_path / f"mmspec-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"mmspec-{os.getuid()}").chmod(0o777)

    with pytest.raises(MmspecError, match="not this user's own"):
        HostTier("engine", LIMIT, tmp_path)


def test_memory_that_is_not_there_is_refused_with_the_mend(tmp_path: Path) -> None:
    with pytest.raises(MmspecError, match="leave memory_size out"):
        HostTier("engine", LIMIT, tmp_path / "nothing")
