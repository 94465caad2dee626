"""What a feature is named by: everything that it depends on, and nothing else.

Each part goes into the digest behind its length, so no two different sets of parts read the same: pixels 30×150 are
not pixels 150×30, and namespace "a" with id "bc" is not namespace "ab" with id "c".
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mmspec.errors import MmspecError

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

_MODEL_CHARACTERS = 200
Setting = str | int | float | bool | None | list[Any] | tuple[Any, ...]


@dataclass(frozen=True)
class FeatureKey:
    """The name of one picture's features.

    Attributes:
        name: 64 hexadecimal digits, safe as a file name whatever it was made from.
        encoder: 16 hexadecimal digits that stand for the `Encoder`, for purging what old weights made.
        namespace: 16 hexadecimal digits that stand for the namespace, for purging a tenant.
        persistable: whether tiers that outlive the engine may hold it.
        model: the model's name, for people.
    """

    name: str
    encoder: str
    namespace: str
    persistable: bool = True
    model: str = ""


@dataclass(frozen=True)
class Encoder:
    """All that turns pixels into features.

    Attributes:
        weights: fingerprint of the vision tower's weights (`mmspec.encoders.cache.weights`).
        dtype: what the tower computes in, such as `bfloat16`.
        width: numbers in one output row; more than the language model's width with DeepStack.
        processor: settings that shape what the tower sees: pixel limits, patch size, merge size, mean, deviation.
        model: the model's name, shown by `mmspec cache ls`; not part of the key, since weights are.
    """

    weights: str
    dtype: str
    width: int
    processor: Mapping[str, Setting] = field(default_factory=dict)
    model: str = ""


class Keys:
    """Makes the keys of one encoder in one namespace. Safe to use from several threads."""

    def __init__(self, encoder: Encoder, namespace: str = "", *, trust_ids: bool = False) -> None:
        self._encoder = _digest("encoder", encoder.weights, encoder.dtype, str(encoder.width))
        self._processor = dict(encoder.processor)
        self._namespace = _digest("namespace", namespace)
        self._trust_ids = trust_ids
        self._model = "".join(c for c in encoder.model if c.isprintable())[:_MODEL_CHARACTERS]

    def of_content(self, content: str, settings: Mapping[str, Setting] | None = None) -> FeatureKey:
        """The key of a picture by the hash of its content.

        Args:
            content: `picture_hash`, `pixels_hash`, or a hash of the same strength made elsewhere.
            settings: processor settings of this request, over those of the encoder.
        """
        return self._key("content", content, settings, persistable=True)

    def of_id(self, user_id: str, settings: Mapping[str, Setting] | None = None) -> FeatureKey:
        """The key of a picture by an id that a user gave: never equal to one by content.

        Nothing ties such an id to the pixels, so it is kept out of persistent tiers unless ids are trusted.
        """
        return self._key("id", user_id, settings, persistable=self._trust_ids)

    def _key(
        self, kind: str, what: str, settings: Mapping[str, Setting] | None, *, persistable: bool
    ) -> FeatureKey:
        processor = _canonical({**self._processor, **(settings or {})})
        return FeatureKey(
            name=_digest("feature", self._namespace, self._encoder, processor, kind, what),
            encoder=self._encoder[:16],
            namespace=self._namespace[:16],
            persistable=persistable,
            model=self._model,
        )


def namespace_digest(namespace: str) -> str:
    """What `FeatureKey.namespace` holds for a namespace."""
    return _digest("namespace", namespace)[:16]


def pixels_hash(pixels: bytes | bytearray | memoryview, shape: tuple[int, ...], mode: str) -> str:
    """The full-length hash of raw pixels.

    Args:
        pixels: contiguous bytes.
        shape: their dimensions, in the order of the bytes.
        mode: what the bytes mean: Pillow's mode, or an array's dtype with its byte order.
    """
    digest = hashlib.sha256(framed("pixels", mode, *map(str, shape)))
    digest.update(pixels)
    return digest.hexdigest()


def array_hash(pixels: "np.ndarray[Any, Any]") -> str:
    """The hash of pixels in an array, its dtype and shape included."""
    import numpy as np

    return pixels_hash(np.ascontiguousarray(pixels).data.cast("B"), pixels.shape, pixels.dtype.str)


def picture_hash(picture: "Image") -> str:
    """The hash of a decoded picture, with its palette and transparent colour: what the processor would see.

    To be called on the picture that goes into the processor, after rotation and conversion; an id in the file's
    metadata is never trusted.
    """
    palette = b""
    if picture.palette is not None:
        palette = picture.palette.mode.encode() + picture.palette.tobytes()
    transparency = repr(picture.info.get("transparency"))
    meaning = hashlib.sha256(framed(picture.mode, palette.hex(), transparency)).hexdigest()
    return pixels_hash(picture.tobytes(), picture.size, f"{picture.mode} {meaning}")


def _digest(*parts: str) -> str:
    return hashlib.sha256(framed(*parts)).hexdigest()


def framed(*parts: str) -> bytes:
    """Each part behind its length, so that no other parts give the same bytes."""
    # A lone surrogate is a legal character of an id, and not of UTF-8.
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    return b"".join(len(part).to_bytes(8, "little") + part for part in encoded)


def _canonical(settings: Mapping[str, Setting]) -> str:
    try:
        return json.dumps(settings, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise MmspecError(
            f"feature key: processor settings must be text, numbers, lists or None, got {dict(settings)!r} ({error})"
        ) from None
