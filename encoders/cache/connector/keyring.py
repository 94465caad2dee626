"""Keys of an engine's pictures, as long as its weights are known."""

import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from mmspec.encoders.cache.identity import parse
from mmspec.encoders.cache.keys import Encoder, FeatureKey, Keys, framed

_log = logging.getLogger("vllm.plugins.mmspec")
_MOST_SALTS = 256


class Keyring:
    """Makes the keys of one engine; makes none while it is in doubt which weights the engine has.

    Args:
        encoder: the engine's, with the fingerprint that holds at its start; an empty one leaves that in doubt.
        trust_ids: whether ids given by users may name entries that outlive the engine.
    """

    def __init__(self, encoder: Encoder, namespace: str, *, trust_ids: bool) -> None:
        self._encoder = encoder
        self._namespace = namespace
        self._trust_ids = trust_ids
        self._persistable = True
        self._keys = lru_cache(_MOST_SALTS)(self._make_keys)

    @property
    def in_doubt(self) -> bool:
        return not self._encoder.weights

    def doubt(self) -> None:
        """The weights may have changed: no keys until `settle`."""
        self._set("", persistable=False)

    def settle(self, fingerprints: Sequence[str | None]) -> None:
        """The weights are these, by the fingerprint of each worker's share.

        Where one is None, as for weights that a kernel keeps in a form of its own, nothing tells them from others:
        their features stay in this engine.
        """
        known = [fingerprint for fingerprint in fingerprints if fingerprint]
        if known and len(known) == len(fingerprints):
            self._set(framed("memory", *known).hex(), persistable=True)
            return
        _log.warning(
            "encoder cache: the vision tower's weights have no fingerprint here, so new features stay in host memory"
        )
        self._set(secrets.token_hex(32), persistable=False)

    def key(self, identifier: str, salt: str | None) -> FeatureKey | None:
        """The key of a picture by its `identifier` (`mmspec.encoders.cache.identity`), None for one without.

        Args:
            salt: the request's `cache_salt`; requests with another one share no features with it.
        """
        named = parse(identifier)
        if named is None or self.in_doubt:
            return None
        keys = self._keys(salt)
        key = keys.of_content(named[1]) if named[0] == "content" else keys.of_id(named[1])
        return key if self._persistable else replace(key, persistable=False)

    def _set(self, weights: str, *, persistable: bool) -> None:
        self._encoder = replace(self._encoder, weights=weights)
        self._persistable = persistable
        self._keys.cache_clear()

    def _make_keys(self, salt: str | None) -> Keys:
        namespace = framed(self._namespace, salt).hex() if salt else self._namespace
        return Keys(self._encoder, namespace, trust_ids=self._trust_ids)
