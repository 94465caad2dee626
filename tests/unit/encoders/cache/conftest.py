"""Folders of entries, sound and spoilt."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmspec.encoders.cache import FolderTier
from tests.small_disk import small_disk
from tests.unit.encoders.cache import entries

__all__ = ["small_disk"]


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
