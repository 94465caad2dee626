"""A disk that is soon full, or may only be read."""

import errno
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SmallDisk = Callable[..., Path]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """`small_disk(megabytes)` mounts a disk of that size; `small_disk(read_only=True)` then makes it so."""
    mount = tmp_path / "small"
    mount.mkdir()

    def change(megabytes: int = 1, *, read_only: bool | None = None) -> Path:
        options = f"size={megabytes}m"
        if read_only is not None:
            options = f"remount,{'ro' if read_only else 'rw'}"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", mount],
            capture_output=True,
            text=True,
            check=False,
        )
        assert not (done.returncode and read_only is not None), done.stderr
        if done.returncode:
            pytest.skip(f"no file system may be mounted here: {done.stderr.strip()}")
        return mount

    if shutil.which("mount") is None:
        pytest.skip("there is no mount command here")
    yield change
    subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)


def fill(folder: Path) -> Path:
    """Takes all the room that a disk has."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC
    return filler
