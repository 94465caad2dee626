"""What the connector is told through vLLM's `ec_connector_extra_config`."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from mmspec.encoders.cache.opening import default_directory, open_store
from mmspec.encoders.cache.store import TieredStore
from mmspec.errors import MmspecError


@dataclass(frozen=True)
class CacheOptions:
    """Tiers and names, as plain values.

    Attributes:
        directory, disk_size, memory_size, remote, remote_ttl, queue_size: as `open_store` takes them.
        namespace: keeps tenants apart.
        trust_ids: let ids given by users name entries of persistent tiers.
    """

    directory: str | None = None
    disk_size: str = "20GB"
    memory_size: str | None = None
    remote: str | None = None
    remote_ttl: str = "7d"
    queue_size: str = "256MiB"
    namespace: str = ""
    trust_ids: bool = False

    @classmethod
    def parse(cls, extra: dict[str, Any]) -> "CacheOptions":
        """Raises MmspecError for an unknown option."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(extra.keys() - known):
            raise MmspecError(
                f"encoder_cache: unknown option {unknown[0]!r} in ec_connector_extra_config; "
                f"known options: {', '.join(sorted(known))}"
            )
        return cls(**extra)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def open(self, engine: str) -> TieredStore:
        """The tiers; where none is named, the disk tier in the user's cache folder.

        Raises:
            MmspecError: as `open_store`.
        """
        directory = self.directory
        if directory is None and self.memory_size is None and self.remote is None:
            directory = str(default_directory())
        return open_store(
            engine=engine,
            directory=directory,
            disk_size=self.disk_size,
            memory_size=self.memory_size,
            remote=self.remote,
            remote_ttl=self.remote_ttl,
            queue_size=self.queue_size,
        )
