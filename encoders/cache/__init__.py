"""The vision-feature cache: an image is encoded once, and its features outlive the engine that made them.

Free of torch and vLLM, except for `mmspec.encoders.cache.tensors`, where tensors become bytes and back.
"""

from mmspec.encoders.cache.entry import Entry
from mmspec.encoders.cache.folder import FolderTier
from mmspec.encoders.cache.host import HostTier
from mmspec.encoders.cache.keys import (
    Encoder,
    FeatureKey,
    Keys,
    array_hash,
    namespace_digest,
    picture_hash,
    pixels_hash,
)
from mmspec.encoders.cache.opening import default_directory, open_store
from mmspec.encoders.cache.remote import RedisTier
from mmspec.encoders.cache.sizes import format_size, parse_duration, parse_size
from mmspec.encoders.cache.store import TieredStore
from mmspec.encoders.cache.tier import Held, Hit, Tier, TierStats, TierUnavailable

__all__ = [
    "Encoder",
    "Entry",
    "FeatureKey",
    "FolderTier",
    "Held",
    "Hit",
    "HostTier",
    "Keys",
    "RedisTier",
    "Tier",
    "TierStats",
    "TierUnavailable",
    "TieredStore",
    "array_hash",
    "default_directory",
    "format_size",
    "namespace_digest",
    "open_store",
    "parse_duration",
    "parse_size",
    "picture_hash",
    "pixels_hash",
]
