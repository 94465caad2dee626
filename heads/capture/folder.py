"""Whether a folder may be captured into, and by whom."""

import fcntl
from pathlib import Path
from typing import Any

from mmspec.errors import MmspecError
from mmspec.heads.capture.manifest import NAME, Manifest, read_manifest

_LOCK = ".lock"


def require_own_folder(folder: Path, manifest: Manifest) -> None:
    """Makes the folder, unless it is there already and was made with the same settings.

    Raises:
        MmspecError: it holds something else.
    """
    if not folder.exists():
        folder.mkdir(parents=True)
    if not folder.is_dir():
        raise MmspecError(f"{folder}: this is a file; give a folder for the captured data")
    if not (folder / NAME).exists():
        if others := sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")):
            raise MmspecError(
                f"{folder}: holds {others[0]} and no {NAME}, so it is no captured data; give a new folder"
            )
        return
    if difference := manifest.difference(read_manifest(folder)):
        raise MmspecError(
            f"{folder}: this capture has {difference} as there; give the same settings, or another folder"
        )


def lock_folder(folder: Path) -> Any:
    """Keeps other captures out until the returned file is closed.

    Raises:
        MmspecError: another one is at work.
    """
    file = (folder / _LOCK).open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise MmspecError(
            f"{folder}: another capture writes here; wait for it, or give another folder"
        ) from None
    return file
