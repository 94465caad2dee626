"""Folders of entries, sound and spoilt."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mmspec.encoders.cache import FolderTier
from tests.unit.encoders.cache import entries


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[FolderTier]:
    """An empty disk tier with room for all that a test stores."""
    made = FolderTier(tmp_path / "cache", 10**9)
    yield made
    made.close()


@pytest.fixture
def filled(tier: FolderTier) -> FolderTier:
    """With entries 0 to 9."""
    for number in range(10):
        tier.put(entries.key(number), entries.entry(number))
    return tier


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
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
        if done.returncode:
            pytest.skip(f"no file system may be mounted here: {done.stderr.strip()}")
        return mount

    if shutil.which("mount") is None:
        pytest.skip("there is no mount command here")
    yield change
    subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder of a user without privileges, as whom the test runs: root could write everywhere."""
    folder = Path(tempfile.mkdtemp(prefix="mmspec-test-"))
    root = os.geteuid() == 0
    if root:
        os.chown(folder, 65534, 65534)
        os.setegid(65534)
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
            os.setegid(0)
        subprocess.run(["chmod", "-R", "u+rwX", folder], check=False)
        shutil.rmtree(folder)
