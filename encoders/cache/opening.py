"""Makes the store that a configuration asks for."""

import logging
import os
from pathlib import Path

from mmspec.encoders.cache.files import Paths
from mmspec.encoders.cache.folder import FolderTier
from mmspec.encoders.cache.host import HostTier
from mmspec.encoders.cache.remote import RedisTier
from mmspec.encoders.cache.sizes import parse_duration, parse_size
from mmspec.encoders.cache.store import TieredStore
from mmspec.encoders.cache.tier import Tier
from mmspec.encoders.pocket.checkpoint import cache_folder
from mmspec.errors import MmspecError

_log = logging.getLogger(__name__)


def default_directory() -> Path:
    """Where the disk tier lies when no folder is named."""
    return cache_folder() / "features"


def require_usable(folder: Path, *, writes: bool = True) -> None:
    """Looks at the folder of a disk tier, and makes nothing, before an engine starts that would go on without it.

    Raises:
        MmspecError: it is a file, must not be used by this user, or has a folder in the place of its index.
    """
    there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not there.is_dir():
        raise MmspecError(f"encoder cache: {there} is not a folder; name another one with --encoder-cache")
    mode = os.X_OK | (os.W_OK if writes else os.R_OK)
    if not os.access(there, mode, effective_ids=os.access in os.supports_effective_ids):
        may = "written to" if writes else "read"
        raise MmspecError(
            f"encoder cache: {there} cannot be {may}; change its permissions, or name another folder"
        )
    if (index := Paths(folder).index).is_dir():
        raise MmspecError(
            f"encoder cache: {index} is a folder, where a file belongs; remove it, or name another cache"
        )


def open_store(
    *,
    engine: str,
    directory: str | Path | None = None,
    disk_size: str | int = "20GB",
    memory_size: str | int | None = None,
    remote: str | None = None,
    remote_ttl: str | int = "7d",
    queue_size: str | int = "256MiB",
) -> TieredStore:
    """The tiers that are asked for, host memory first, then disk, then remote; what they hold is logged.

    Args:
        engine: what the processes of one engine have in common, such as vLLM's `engine_id`.
        directory: of the disk tier; None for none.
        disk_size, memory_size, remote_ttl, queue_size: as `parse_size` and `parse_duration` read them.
        remote: `redis://…`; None for none.

    Raises:
        MmspecError: a limit or an address that is none, or memory that cannot be shared. Everything else that is
            wrong with a tier costs only the tier.
    """
    tiers: list[Tier] = []
    queue_limit = parse_size(queue_size, "queue_size")
    disk_limit = parse_size(disk_size, "disk_size")
    if memory_size is not None:
        tiers.append(HostTier(engine, parse_size(memory_size, "memory_size")))
    if directory is not None:
        tiers.append(FolderTier(Path(directory).expanduser(), disk_limit))
    if remote is not None:
        tiers.append(RedisTier(remote, parse_duration(remote_ttl, "remote_ttl")))
    store = TieredStore(tiers, queue_limit=queue_limit)
    for line in store.report():
        _log.info("%s", line)
    return store
