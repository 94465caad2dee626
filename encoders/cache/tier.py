"""What a tier of the cache is."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mmspec.encoders.cache.entry import Entry
from mmspec.encoders.cache.keys import FeatureKey


class TierUnavailable(Exception):
    """A tier cannot do what was asked just now; the text says why, in one line."""


@contextmanager
def unavailable(where: Path) -> Iterator[None]:
    """Turns an error of the operating system into `TierUnavailable`."""
    try:
        yield
    except OSError as error:
        raise TierUnavailable(f"{where}: {error.strerror or error}") from error


@dataclass(frozen=True)
class TierStats:
    """What a tier holds. Counters are those of the whole folder where processes share one.

    Attributes:
        entries, bytes: None where counting is not cheap.
        limit: most bytes that it keeps; None for a tier that bounds itself otherwise.
        evictions: entries dropped for room.
        corrupt: entries dropped because they failed a check.
    """

    name: str
    entries: int | None = None
    bytes: int | None = None
    limit: int | None = None
    evictions: int = 0
    corrupt: int = 0


@dataclass(frozen=True)
class Hit:
    """An entry, and the name of the tier that had it."""

    entry: Entry
    tier: str


@dataclass(frozen=True)
class Held:
    """An entry that stays readable until it is released. Plain text, to be sent to another process.

    Attributes:
        tier: where it is held.
        found: the tier that had it: another one when it came over the network.
    """

    tier: str
    token: str
    found: str


class Tier(ABC):
    """Holds entries under keys, and may lose any of them at any time.

    Every method may be called from several threads at once, and any number of processes may have the same storage
    open. An instance belongs to the process that made it: make it after a fork, never before.

    A tier never returns an entry that was not put under that key. Where it cannot work (no room, no connection, no
    permission) a method raises `TierUnavailable`, and only that; `TieredStore` turns this into a miss.

    Attributes:
        name: `host`, `disk` or `remote`; in logs and metrics.
        persistent: whether it outlives the engine or is shared with others; it is then never given a key
            that is not persistable.
        local: whether `contains` answers from this machine.
        deadline: seconds after which an operation counts as a failure, although it came back; None for no limit.
    """

    name: str
    persistent: bool
    local: bool = True
    deadline: float | None = None

    @abstractmethod
    def get(self, key: FeatureKey) -> Entry | None:
        """The entry, checked, or None. What fails its checks is dropped, and is a miss."""

    @abstractmethod
    def put(self, key: FeatureKey, entry: Entry) -> bool:
        """Stores an entry, visible to all at once or not at all; evicts others for room.

        Returns:
            False when the tier does not take it, because it is larger than the whole tier.
        """

    @abstractmethod
    def contains(self, key: FeatureKey) -> bool:
        """Whether `get` would probably find it, without reading it: one `stat` call, or one round trip."""

    @abstractmethod
    def stats(self) -> TierStats:
        """What it holds: a query of the index, for a metrics page rather than for every step."""

    @abstractmethod
    def purge(self, *, encoder: str | None = None, namespace: str | None = None) -> int:
        """Drops the entries of an encoder or a namespace (`FeatureKey.encoder`, `.namespace`), or all.

        Returns:
            How many there were.
        """

    @abstractmethod
    def close(self) -> None:
        """Lets go of files and connections. Entries handed out stay valid."""
