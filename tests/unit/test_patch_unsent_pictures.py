"""vLLM's notes of what its engine knows of pictures, when a request is refused between the notes and the engine."""

import asyncio
import functools
import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.multimodal.cache import MultiModalCacheMissError
from vllm.multimodal.cache.lru import LruKeyReplicatedReceiverCache, LruKeyReplicatedSenderCache
from vllm.multimodal.inputs import MultiModalKwargsItem

from mmspec.patches import patch as patch_module
from mmspec.patches import unsent_pictures
from mmspec.patches.unsent_pictures import (
    FOLLOW_SENDING,
    KNOWN_WHEN_SENT,
    REFUSED_LATE,
    SEND_AGAIN,
    note_sent,
)

MODEL: Any = SimpleNamespace(get_multimodal_config=lambda: SimpleNamespace(mm_processor_cache_gb=1))


def mark(function: Any) -> Any:
    """The function as a patch would leave it."""

    @functools.wraps(function)
    def replacement(*args: Any) -> Any:
        return function(*args)

    setattr(replacement, patch_module._MARK, "it")
    return replacement


class Stock(LruKeyReplicatedSenderCache):
    is_cached_item = inspect.unwrap(LruKeyReplicatedSenderCache.is_cached_item)
    get_and_update_item = inspect.unwrap(LruKeyReplicatedSenderCache.get_and_update_item)


class Patched(Stock):
    is_cached_item = KNOWN_WHEN_SENT.wrap(Stock.is_cached_item)
    get_and_update_item = SEND_AGAIN.wrap(Stock.get_and_update_item)


class Processor:
    """The part of vLLM's `InputProcessor` that the patch looks at."""

    def __init__(self, vllm_config: Any, renderer: Any = None, *, mm_registry: Any = None) -> None:
        self.renderer = renderer

    def process_inputs(self) -> None:
        """Takes note of sending, when it is patched."""


class Server:
    """A picture's way from its processing to the engine.

    Attributes:
        processed: how often a picture was processed.
    """

    def __init__(self, sender: type[Stock], additional_config: Any, *, sending_is_noted: bool = True) -> None:
        self.sender, self.engine = sender(MODEL), LruKeyReplicatedReceiverCache(MODEL)
        self.processed = 0
        config = SimpleNamespace(additional_config=additional_config)
        processor = type("Patched", (Processor,), {})
        if sending_is_noted:
            processor.process_inputs = mark(processor.process_inputs)  # type: ignore[method-assign]
        self.inputs = Processor.__new__(processor)
        init = FOLLOW_SENDING.wrap(Processor.__init__)
        init(self.inputs, config, SimpleNamespace(mm_processor_cache=self.sender))

    def render(self, *names: str) -> Any:
        known = self.sender.is_cached([*names])
        self.processed += known.count(False)
        items = [
            None if one else (MultiModalKwargsItem.dummy(nbytes=8), [name])
            for name, one in zip(names, known, strict=True)
        ]
        found = [self.sender.get_and_update_item(item, name) for item, name in zip(items, names, strict=True)]
        assert [updates for _, updates in found] == [[name] for name in names]
        features = [
            SimpleNamespace(mm_hash=name, identifier=name, data=data)
            for name, (data, _) in zip(names, found, strict=True)
        ]
        return SimpleNamespace(mm_features=features)

    def refuse_late(self, request: Any) -> None:
        """As `AsyncLLM` where the queue is full: behind the note that the request goes."""

        async def add_request(self: Any, request_id: str, prompt: Any) -> None:
            note_sent(self.input_processor, request)
            raise RuntimeError("the queue is full")

        hashes, items = zip(*((one.mm_hash, one.data) for one in request.mm_features), strict=True)
        prompt = {"type": "multimodal", "mm_kwargs": {"image": items}, "mm_hashes": {"image": hashes}}
        llm = SimpleNamespace(input_processor=self.inputs)
        with pytest.raises(RuntimeError, match="full"):
            asyncio.run(REFUSED_LATE.wrap(add_request)(llm, "1", prompt))

    def send(self, request: Any) -> None:
        note_sent(self.inputs, request)
        assert all(
            feature.data is not None for feature in self.engine.get_and_update_features(request.mm_features)
        )


@pytest.fixture
def server() -> Server:
    return Server(Patched, {"mmspec": {}})


@pytest.mark.parametrize(("sender", "config"), [(Stock, {"mmspec": {}}), (Patched, {}), (Patched, None)])
def test_stock_vllm_still_needs_the_patch_and_unconfigured_engines_are_stock(
    sender: type[Stock], config: Any
) -> None:
    server = Server(sender, config)
    server.render("a")  # refused

    with pytest.raises(MultiModalCacheMissError):
        server.send(server.render("a"))


def test_the_picture_of_a_refused_request_is_sent_with_the_next(server: Server) -> None:
    for _ in range(2):
        server.render("a")  # refused
    server.send(server.render("a"))
    server.send(server.render("a"))

    assert server.processed == 3  # twice in vain, then once for all


def test_the_pictures_of_a_request_that_finds_the_queue_full_are_sent_with_the_next(server: Server) -> None:
    server.send(server.render("a"))
    server.refuse_late(server.render("a", "b"))
    server.send(server.render("b", "a"))

    assert server.processed == 3  # a, and b twice


def test_nothing_is_noted_where_nothing_notes_the_sending() -> None:
    server = Server(Patched, {"mmspec": {}}, sending_is_noted=False)

    server.send(server.render("a"))
    server.send(server.render("a"))
    assert server.processed == 1


def test_others_pictures_are_known_as_ever(server: Server) -> None:
    server.send(server.render("a", "b"))
    server.render("a", "c")  # refused
    server.send(server.render("c", "a", "b"))

    assert server.processed == 4  # a, b, and c twice


def test_a_picture_twice_in_a_prompt_and_in_two_prompts_at_once(server: Server) -> None:
    server.send(server.render("a", "a"))
    first, second = server.render("b"), server.render("b")
    server.send(second)
    server.send(first)
    server.send(server.render("a", "b"))


def test_what_the_engine_has_lost_is_sent_again(server: Server) -> None:
    server.send(server.render("a"))
    server.engine.clear_cache()
    with pytest.raises(MultiModalCacheMissError):
        server.send(server.render("a"))
    server.sender.invalidate("a")  # as vLLM does then

    server.send(server.render("a"))


def test_what_is_never_sent_is_not_kept_for_ever(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsent_pictures, "_MANY", 4)
    for number in range(20):
        server.render(f"refused {number}")
        server.sender.clear_cache()

    assert len(vars(server.sender)[unsent_pictures._UNSENT]) <= 5
    server.send(server.render("refused 19"))


def test_a_request_without_pictures_and_an_engine_without_the_cache() -> None:
    note_sent(
        SimpleNamespace(renderer=SimpleNamespace(mm_processor_cache=None)), SimpleNamespace(mm_features=[])
    )
    note_sent(Server(Patched, {"mmspec": {}}).inputs, SimpleNamespace(mm_features=None))
