"""What the machine offers: processors, memory, room for the cache."""

import os
import shutil
from pathlib import Path

_GIB = 1 << 30


def cpu_count() -> int:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_gib() -> float | None:
    """The machine's memory, or a container's limit where that is smaller; None where neither can be told."""
    sizes = [_physical_memory(), *map(_limit, ("memory.max", "memory/memory.limit_in_bytes"))]
    known = [size for size in sizes if size is not None]
    return min(known) / _GIB if known else None


def free_gib(folder: Path) -> float:
    """The free space where `folder` is, or will be made."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
    return shutil.disk_usage(existing).free / _GIB


def _physical_memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def _limit(name: str) -> int | None:
    """A limit of the control group, version 2 or 1; absent or "max" without one."""
    try:
        return int((Path("/sys/fs/cgroup") / name).read_text())
    except (OSError, ValueError):
        return None
