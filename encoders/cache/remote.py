"""The tier in a Redis or Valkey server, shared between machines."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from mmspec.encoders.cache.entry import LAYOUT, Corrupt, Entry, decode, encode
from mmspec.encoders.cache.keys import FeatureKey
from mmspec.encoders.cache.tier import Tier, TierStats, TierUnavailable
from mmspec.errors import MmspecError

_LARGEST_VALUE = 512 * 1024**2  # Redis takes no larger one
_CONNECT_SECONDS = 0.5
_BATCH = 500


class RedisTier(Tier):
    """Entries on a server, each for `ttl_seconds` after it was stored; what is most worth keeping is up to the server.

    Values are checked like files. A server can be emptied or stopped at any time.

    Args:
        url: `redis://[user:password@]host[:port][/database]`, `rediss://` for TLS.
        ttl_seconds: how long an entry lives.
        seconds: most that one reply may take.

    Raises:
        MmspecError: not such an address, or the Python package is missing.
    """

    name = "remote"
    persistent = True
    local = False

    def __init__(self, url: str, ttl_seconds: float, seconds: float = 1.0) -> None:
        self._where = shown_address(url)
        self.deadline = seconds
        self._ttl_ms = max(1, round(ttl_seconds * 1000))
        self._client = _connect(url, seconds)  # Any: redis changes its types from version to version
        self._corrupt = 0
        self._lock = threading.Lock()

    def get(self, key: FeatureKey) -> Entry | None:
        with self._reached():
            value = self._client.get(_name(key))
            if value is None:
                return None
            try:
                return decode(memoryview(bytearray(value)), key.name)  # writable, as a tensor has to be
            except Corrupt:
                with self._lock:
                    self._corrupt += 1
                self._client.delete(_name(key))
                return None

    def put(self, key: FeatureKey, entry: Entry) -> bool:
        header = encode(key, entry)
        if not key.persistable or len(header) + entry.data.nbytes > _LARGEST_VALUE:
            return False
        with self._reached():
            if not self._client.exists(_name(key)):
                self._client.set(_name(key), b"".join((header, entry.data)), px=self._ttl_ms)
        return True

    def contains(self, key: FeatureKey) -> bool:
        with self._reached():
            return bool(self._client.exists(_name(key)))

    def stats(self) -> TierStats:
        return TierStats(self.name, corrupt=self._corrupt)

    def purge(self, *, encoder: str | None = None, namespace: str | None = None) -> int:
        pattern = f"mmspec:{LAYOUT}:{namespace or '*'}:{encoder or '*'}:*"
        with self._reached():
            names = list(self._client.scan_iter(pattern, count=_BATCH))
            batches = (names[start : start + _BATCH] for start in range(0, len(names), _BATCH))
            return sum(self._client.delete(*batch) for batch in batches)

    def close(self) -> None:
        with self._reached():
            self._client.close()

    @contextmanager
    def _reached(self) -> Iterator[None]:
        from redis import RedisError

        try:
            yield
        except (RedisError, OSError) as error:
            raise TierUnavailable(f"{self._where}: {error or type(error).__name__}") from error


def _name(key: FeatureKey) -> str:
    return f"mmspec:{LAYOUT}:{key.namespace}:{key.encoder}:{key.name}"


def _connect(url: str, seconds: float) -> Any:
    require_client()
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    options: dict[str, Any] = {
        "socket_timeout": seconds,
        "socket_connect_timeout": min(seconds, _CONNECT_SECONDS),
        "retry": Retry(NoBackoff(), 0),  # the breaker decides when to try again
        "protocol": 2,
    }
    return Redis.from_url(url, **options)


def require_client() -> None:
    """Raises MmspecError where the Python package that talks to a server is missing."""
    try:
        import redis  # noqa: F401
    except ImportError:
        raise MmspecError(
            "encoder_cache.remote: the Python package redis is missing; pip install redis, or mmspec[remote]"
        ) from None


def shown_address(url: str) -> str:
    """The address without its password.

    Raises:
        MmspecError: not an address of a Redis server.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 6379
    except ValueError:
        host, port = None, 0
    scheme, found, _ = url.partition("://")
    if host is None or scheme not in ("redis", "rediss"):
        given = f"begins with {scheme}://" if found else "has no scheme"
        raise MmspecError(
            f"encoder_cache.remote: expected an address like redis://host:6379, or rediss:// for TLS; this one {given}"
        )
    return f"{parts.scheme}://{host}:{port}"
