"""From plain options to a store, and what stays light."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from mmspec.encoders.cache import default_directory, open_store
from mmspec.encoders.cache.opening import require_usable
from mmspec.errors import MmspecError
from tests.unit.encoders.cache.entries import entry, key


def test_the_tiers_that_are_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    store = open_store(
        engine=str(tmp_path),
        directory=tmp_path / "cache",
        memory_size="10MB",
        remote="redis://127.0.0.1:1",
        disk_size="1GB",
    )
    names = [stats["name"] for stats in store.stats()]
    store.put(key(1), entry(1))
    store.close()

    assert names == ["host", "disk", "remote"]
    assert "the disk tier holds 0 pictures in 0 B of 1 GB" in caplog.text
    caplog.clear()
    open_store(engine="e", directory=tmp_path / "cache").close()
    assert "the disk tier holds 1 pictures" in caplog.text


def test_no_tier_is_on_by_itself() -> None:
    assert open_store(engine="e").stats() == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"disk_size": "20"}, "disk_size"),
        ({"memory_size": "much"}, "memory_size"),
        ({"queue_size": "0MB"}, "queue_size"),
        ({"remote": "localhost"}, "encoder_cache.remote"),
        ({"remote": "redis://localhost", "remote_ttl": "7"}, "remote_ttl"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], named: str) -> None:
    with pytest.raises(MmspecError, match=f"^{named}: "):
        open_store(engine="e", **options)


def test_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")

    assert default_directory() == Path("/somewhere/mmspec/features")


def test_it_needs_neither_torch_nor_redis() -> None:
    code = "import sys, mmspec.encoders.cache; print({'torch', 'vllm', 'redis', 'transformers'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"


def test_a_folder_that_can_be_used_or_made_is_not_touched(tmp_path: Path) -> None:
    require_usable(tmp_path)
    require_usable(tmp_path / "not" / "there" / "yet")

    assert not list(tmp_path.iterdir())


def test_what_cannot_be_the_folder_of_a_cache(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "cache" / "index.sqlite").mkdir(parents=True)

    for folder in ("file", "file/below"):
        with pytest.raises(MmspecError, match="file is not a folder; name another one with --encoder-cache"):
            require_usable(tmp_path / folder)
    with pytest.raises(MmspecError, match=r"index\.sqlite is a folder, where a file belongs; remove it"):
        require_usable(tmp_path / "cache")


def test_a_folder_of_others(unprivileged: Path) -> None:
    locked, readable = unprivileged / "locked", unprivileged / "readable"
    locked.mkdir(mode=0o000)
    readable.mkdir(mode=0o500)

    require_usable(readable, writes=False)
    for folder, may in ((readable, "written to"), (readable / "below", "written to"), (locked, "written to")):
        with pytest.raises(MmspecError, match=f"cannot be {may}; change its permissions"):
            require_usable(folder)
    with pytest.raises(MmspecError, match="cannot be read"):
        require_usable(locked, writes=False)
