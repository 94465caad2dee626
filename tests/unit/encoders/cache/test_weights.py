"""Fingerprints of a checkpoint's vision tower."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from mmspec.encoders.cache.weights import checkpoint_fingerprint
from mmspec.errors import MmspecError

PREFIXES = ("visual.", "projector.")


def checkpoint(folder: Path, *files: dict[str, np.ndarray]) -> Path:
    folder.mkdir(parents=True)
    for number, tensors in enumerate(files):
        save_file(tensors, folder / f"model-{number}.safetensors", metadata={"number": str(number)})
    return folder


def tower(value: float = 1.0) -> dict[str, np.ndarray]:
    return {"visual.a": np.full((2, 3), value, np.float32), "projector.b": np.zeros(5, np.float16)}


def test_only_the_tower_counts_however_it_is_cut_into_files(tmp_path: Path) -> None:
    whole = checkpoint(tmp_path / "whole", {**tower(), "language.c": np.ones(3)})
    parts = [{name: value} for name, value in tower().items()]
    cut = checkpoint(tmp_path / "cut", *reversed(parts), {"language.c": np.zeros(3)})

    assert checkpoint_fingerprint(whole, PREFIXES) == checkpoint_fingerprint(cut, PREFIXES)


@pytest.mark.parametrize(
    "changed",
    [
        tower(1.0000001),
        {**tower(), "visual.a": tower()["visual.a"].reshape(3, 2)},
        {**tower(), "visual.a": tower()["visual.a"].view(np.int32)},
        {**tower(), "visual.more": np.zeros(1)},
        {"visual.b": tower()["visual.a"], "projector.b": tower()["projector.b"]},
    ],
    ids=["value", "shape", "dtype", "more", "name"],
)
def test_any_change_of_the_tower_counts(tmp_path: Path, changed: dict[str, np.ndarray]) -> None:
    base, other = checkpoint(tmp_path / "base", tower()), checkpoint(tmp_path / "other", changed)

    assert checkpoint_fingerprint(base, PREFIXES) != checkpoint_fingerprint(other, PREFIXES)


def test_a_checkpoint_without_a_tower_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MmspecError, match=r"starts with visual\. or projector\."):
        checkpoint_fingerprint(checkpoint(tmp_path / "text", {"language.c": np.ones(3)}), PREFIXES)


def test_a_spoilt_file_is_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "spoilt", tower())
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(MmspecError, match="cut short"):
        checkpoint_fingerprint(folder, PREFIXES)
    file.write_bytes(b"\xff" * 100)
    with pytest.raises(MmspecError, match="no safetensors file"):
        checkpoint_fingerprint(folder, PREFIXES)
