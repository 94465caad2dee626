"""Tells pictures named by their content from those named by a user's id, in engines with a vision-feature cache.

vLLM 0.32 takes a user's id for the name of the picture as it is, equal to a hash of content if it looks like one, and
nothing behind the renderer can tell the two apart.
"""

import functools
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from mmspec.compat import SUPPORTED
from mmspec.encoders.cache.identity import by_content, by_id, given_features, identifier_of
from mmspec.patches.configured import caches_features
from mmspec.patches.patch import Patch

# Content is content whatever model looks at it; the key of an entry has the model's weights.
_ANY_MODEL = "mmspec"


class GivenIds(dict[str, Any]):
    """The ids of a request of such an engine, by modality; None for a picture without."""


def _wrap_uuids(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _process_mm_uuids(
        self: Any, mm_data: Any, mm_data_items: Any, mm_uuid_items: Any, mm_req_id: str
    ) -> Any:
        if not caches_features(self.config.additional_config):
            return original(self, mm_data, mm_data_items, mm_uuid_items, mm_req_id)
        # Without vLLM's own caches the original makes up ids to spare the hashing, and here hashes are needed.
        self._validate_mm_uuids(mm_data, mm_data_items, mm_uuid_items)
        return GivenIds(mm_uuid_items)

    return _process_mm_uuids


def _wrap_hashes(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get_mm_hashes(self: Any, model_id: str, hash_algorithm: str) -> Any:
        if not isinstance(self.mm_uuid_items, GivenIds):
            return original(self, model_id, hash_algorithm)
        hashes = original(self, _ANY_MODEL, hash_algorithm)
        return {
            modality: _names(digests, self.mm_data_items[modality], self.mm_uuid_items.get(modality))
            for modality, digests in hashes.items()
        }

    return get_mm_hashes


def _names(digests: list[str], items: Any, ids: Sequence[str | None] | None) -> list[str]:
    from vllm.multimodal.parse import DictEmbeddingItems, EmbeddingItems

    of_content = given_features if isinstance(items, EmbeddingItems | DictEmbeddingItems) else by_content
    return [
        of_content(digest) if given is None and not _names_itself(item) else by_id(digest)
        for digest, given, item in zip(
            digests, ids or [None] * len(digests), items.get_all_items_for_hash(), strict=True
        )
    ]


def _names_itself(item: Any) -> bool:
    """Whether vLLM would take an id out of the picture instead of looking at its pixels."""
    picture = getattr(item, "media", item)
    if not hasattr(picture, "getexif"):
        return False
    try:
        from PIL import ExifTags

        return isinstance(picture.getexif().get(ExifTags.Base.ImageID), uuid.UUID)
    except Exception:  # of files with a broken header, which vLLM hashes by their content
        return False


def _wrap_identifier(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _get_mm_identifier(self: Any, mm_hash: str, lora_request: Any) -> str:
        if caches_features(self.vllm_config.additional_config):
            mm_hash = identifier_of(mm_hash)
        identifier: str = original(self, mm_hash, lora_request)
        return identifier

    return _get_mm_identifier


_identity_patch = functools.partial(
    Patch,
    upstream="vLLM issue 55547 has one consequence: an id used again for other content",
    versions=SUPPORTED,
    remove_when="vLLM marks names of pictures that come from users",
    lazy=True,
)

IDS_AS_GIVEN = _identity_patch(
    target="vllm.renderers.base:BaseRenderer._process_mm_uuids",
    parameters=("self", "mm_data", "mm_data_items", "mm_uuid_items", "mm_req_id"),
    wrap=_wrap_uuids,
    why="tells the next patch that the engine has a vision-feature cache, and which ids came from the user: with its "
    "own caches off vLLM makes ids up, the same ones in each start",
)
NAMES_BY_ORIGIN = _identity_patch(
    target="vllm.multimodal.processing.inputs:ProcessorInputs.get_mm_hashes",
    parameters=("self", "model_id", "hash_algorithm"),
    wrap=_wrap_hashes,
    why="an id given by a user stands for a picture like the hash of its content, so that it may be taken for another "
    "picture's; entries that outlive the engine must not be named by it",
)
IDENTIFIERS_BY_ORIGIN = _identity_patch(
    target="vllm.v1.engine.input_processor:InputProcessor._get_mm_identifier",
    parameters=("self", "mm_hash", "lora_request"),
    wrap=_wrap_identifier,
    why="names that were not made by the patch before, such as those that a client of /inference/v1/generate sends, "
    "count as ids",
)
