"""How pictures are named in engines with the feature cache; vLLM's part is a stand-in that names as vLLM does."""

import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import ExifTags, Image

from mmspec.encoders.cache.identity import parse
from mmspec.patches.picture_identity import IDENTIFIERS_BY_ORIGIN, IDS_AS_GIVEN, NAMES_BY_ORIGIN

CACHING: dict[str, Any] = {"mmspec": {"encoder_cache": {}}}
HASH = "ab" * 32


class Items(list[Any]):
    def get_all_items_for_hash(self) -> list[Any]:
        return list(self)


class Renderer:
    def __init__(self, additional_config: Any) -> None:
        self.config = SimpleNamespace(additional_config=additional_config)
        self.validated = 0

    def _validate_mm_uuids(self, *given: Any) -> None:
        self.validated += 1

    def _process_mm_uuids(self, mm_data: Any, mm_data_items: Any, mm_uuid_items: Any, mm_req_id: str) -> Any:
        return {modality: [f"{mm_req_id}-{modality}-0"] for modality in mm_data_items}


class Inputs:
    def __init__(self, items: Any, ids: Any) -> None:
        self.mm_data_items, self.mm_uuid_items = items, ids

    def get_mm_hashes(self, model_id: str, hash_algorithm: str) -> dict[str, list[str]]:
        ids = self.mm_uuid_items or {}
        return {
            modality: [given or HASH for given in ids.get(modality) or [None] * len(items)]
            for modality, items in self.mm_data_items.items()
        }


class Processor:
    def __init__(self, additional_config: Any) -> None:
        self.vllm_config = SimpleNamespace(additional_config=additional_config)

    def _get_mm_identifier(self, mm_hash: str, lora_request: Any) -> str:
        return f"{lora_request}:{mm_hash}" if lora_request else mm_hash


process = IDS_AS_GIVEN.wrap(Renderer._process_mm_uuids)
hashes = NAMES_BY_ORIGIN.wrap(Inputs.get_mm_hashes)
identifier = IDENTIFIERS_BY_ORIGIN.wrap(Processor._get_mm_identifier)


def identified(picture: Any, given: str | None, config: Any = CACHING, adapter: str | None = None) -> str:
    items = {"image": Items([picture])}
    ids = process(Renderer(config), {}, items, {} if given is None else {"image": [given]}, "renderer0-mm-1")
    (name,) = hashes(Inputs(items, ids), "a/model", "blake3")["image"]
    found: str = identifier(Processor(config), name, adapter)
    return found


@pytest.fixture
def picture() -> Image.Image:
    return Image.new("RGB", (30, 20), "red")


@pytest.mark.slow
def test_content_counts_as_content_and_an_id_as_an_id(picture: Image.Image) -> None:
    assert parse(identified(picture, None)) == ("content", HASH)
    for given in (HASH, f"mmspec:content:{HASH}", "../x"):
        named = parse(identified(picture, given))
        assert named is not None and named[0] == "id" and HASH not in named[1]


@pytest.mark.slow
def test_an_id_inside_the_picture_is_an_id(picture: Image.Image) -> None:
    """vLLM takes one for the picture's hash, in place of its pixels."""
    picture.getexif()[ExifTags.Base.ImageID] = uuid.uuid4()
    named = parse(identified(picture, None))

    assert named is not None and named[0] == "id"


@pytest.mark.slow
def test_what_an_adapter_changes_is_not_kept(picture: Image.Image) -> None:
    assert parse(identified(picture, None, adapter="an adapter")) is None


@pytest.mark.slow
def test_features_that_a_request_brings_are_not_kept() -> None:
    import torch
    from vllm.multimodal.parse import EmbeddingItems

    class Given(EmbeddingItems):
        def get_processor_data(self) -> Any:
            return {}

    items = {"image": Given([torch.zeros(4, 8)], "image")}
    ids = process(Renderer(CACHING), {}, items, {}, "renderer0-mm-1")
    (name,) = hashes(Inputs(items, ids), "a/model", "blake3")["image"]
    assert parse(identifier(Processor(CACHING), name, None)) is None


@pytest.mark.parametrize("config", [None, {}, {"mmspec": {}}, {"mmspec": {"encoder_cache": None}}])
def test_engines_without_the_cache_are_left_alone(config: Any, picture: Image.Image) -> None:
    assert identified(picture, None, config) == "renderer0-mm-1-image-0"
    items = {"image": Items([picture])}
    assert hashes(Inputs(items, {"image": ["an id"]}), "a/model", "blake3") == {"image": ["an id"]}
    assert hashes(Inputs(items, None), "a/model", "blake3") == {"image": [HASH]}
    assert identifier(Processor(config), HASH, None) == HASH


def test_ids_are_checked_as_before(picture: Image.Image) -> None:
    renderer = Renderer(CACHING)
    process(renderer, {}, {"image": Items([picture])}, {}, "renderer0-mm-1")
    assert renderer.validated == 1
