"""The state of the pocket VLM, told without building it."""

import hashlib
import json
from pathlib import Path

import pytest

from mmspec.encoders.pocket import checkpoint
from mmspec.environment import cache
from mmspec.errors import MmspecError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a build of made-up weights would lie."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(checkpoint, "fingerprint", lambda: "f" * 64)
    monkeypatch.setattr(cache, "gguf_path", lambda: tmp_path / "weights.gguf")
    folder = tmp_path / "mmspec" / "pocket-ffffffffffff"
    folder.mkdir(parents=True)
    return folder


def write_build(folder: Path) -> None:
    """Two files, and the manifest that vouches for them."""
    names = ("config.json", "model.safetensors")
    for name in names:
        (folder / name).write_text("{}")
    entry = {"bytes": 2, "sha256": hashlib.sha256(b"{}").hexdigest()}
    (folder / "manifest.json").write_text(json.dumps({"files": dict.fromkeys(names, entry)}))


def test_a_whole_build_is_found(folder: Path) -> None:
    write_build(folder)
    assert cache.pocket() == cache.Pocket(folder, None)


def test_a_half_build_is_none(folder: Path) -> None:
    write_build(folder)
    (folder / "config.json").unlink()
    assert cache.pocket() == cache.Pocket(None, None)


def test_a_build_of_other_weights_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_build(folder)
    monkeypatch.setattr(checkpoint, "fingerprint", lambda: "e" * 64)
    assert cache.pocket().folder is None


def test_what_is_missing_for_a_build_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise MmspecError("no weights: install them")

    monkeypatch.setattr(cache, "gguf_path", missing)
    assert cache.pocket() == cache.Pocket(None, "no weights: install them")
