"""Takes a picture for known to the engine only when it has been sent there.

vLLM 0.32 notes a new picture as known as soon as it is processed. A request that is refused behind that never gets to
the engine, and the next one about its picture would go without the picture's data: a 500.
"""

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from mmspec.compat import SUPPORTED
from mmspec.patches.configured import is_configured
from mmspec.patches.patch import Patch, is_patched

_CACHE = "vllm.multimodal.cache.lru:LruKeyReplicatedSenderCache"
_UNSENT = "_mmspec_unsent"  # on the cache: hashes of what is noted there and was not sent yet
_MANY = 4096  # hashes, from which those are forgotten that the cache has forgotten


def _wrap_init(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, vllm_config: Any, renderer: Any = None, **kwargs: Any) -> None:
        original(self, vllm_config, renderer, **kwargs)
        from vllm.multimodal.cache.lru import LruKeyReplicatedSenderCache

        cache = self.renderer.mm_processor_cache
        sending_is_noted = is_patched(type(self).process_inputs)
        if (
            sending_is_noted
            and isinstance(cache, LruKeyReplicatedSenderCache)
            and is_configured(vllm_config.additional_config)
        ):
            vars(cache)[_UNSENT] = set()

    return __init__


def _wrap_is_cached(original: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(original)
    def is_cached_item(self: Any, mm_hash: str) -> bool:
        return original(self, mm_hash) and mm_hash not in vars(self).get(_UNSENT, ())

    return is_cached_item


def _wrap_update(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get_and_update_item(self: Any, mm_item: Any, mm_hash: str) -> Any:
        unsent: set[str] | None = vars(self).get(_UNSENT)
        if unsent is None or mm_item is None:
            return original(self, mm_item, mm_hash)
        if mm_hash in unsent:
            self.invalidate(mm_hash)
        data, updates = original(self, mm_item, mm_hash)
        if data is not None:  # otherwise another request has sent it by now
            unsent.add(mm_hash)
        if len(unsent) > max(_MANY, 2 * len(self._cache)):
            unsent.difference_update([other for other in list(unsent) if other not in self._cache])
        return data, updates

    return get_and_update_item


def note_sent(input_processor: Any, request: Any) -> None:
    """Takes note that a request (vLLM's `EngineCoreRequest`) goes to the engine, with the data of its new pictures."""
    unsent = _unsent(input_processor) or set()
    for feature in request.mm_features or ():
        if feature.data is not None:
            unsent.discard(feature.mm_hash or feature.identifier)


def _wrap_add_request(original: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(original)
    async def add_request(self: Any, request_id: str, prompt: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return await original(self, request_id, prompt, *args, **kwargs)
        except BaseException:  # the queue is full, or the client is gone
            _note_unsent(self.input_processor, prompt)
            raise

    return add_request


def _note_unsent(input_processor: Any, prompt: Any) -> None:
    """Takes back what `note_sent` noted of a rendered prompt: what was sent after all is sent twice, no harm done."""
    unsent = _unsent(input_processor)
    if unsent is None or not isinstance(prompt, dict) or prompt.get("type") != "multimodal":
        return
    for modality, items in prompt["mm_kwargs"].items():
        hashes = prompt["mm_hashes"][modality]
        unsent.update(mm_hash for mm_hash, item in zip(hashes, items, strict=True) if item is not None)


def _unsent(input_processor: Any) -> set[str] | None:
    """What was not sent yet; None for an engine that has no such cache or no such patch."""
    cache = input_processor.renderer.mm_processor_cache
    found: set[str] | None = None if cache is None else vars(cache).get(_UNSENT)
    return found


_unsent_patch = functools.partial(
    Patch,
    upstream="none known",
    versions=SUPPORTED,
    remove_when="vLLM notes a picture as known to the engine no earlier than it sends it there",
    lazy=True,
)
_WHY = (
    "the next request about the new picture of a refused one would fail with a 500 (Multi-modal cache miss)"
)

FOLLOW_SENDING = _unsent_patch(
    target="vllm.v1.engine.input_processor:InputProcessor.__init__",
    parameters=("self", "vllm_config", "renderer", "mm_registry"),
    wrap=_wrap_init,
    why=f"switches the next two on: {_WHY}",
)
KNOWN_WHEN_SENT = _unsent_patch(
    target=f"{_CACHE}.is_cached_item",
    parameters=("self", "mm_hash"),
    wrap=_wrap_is_cached,
    why=_WHY,
)
SEND_AGAIN = _unsent_patch(
    target=f"{_CACHE}.get_and_update_item",
    parameters=("self", "mm_item", "mm_hash"),
    wrap=_wrap_update,
    why=f"notes what is new and unsent, and lets it be processed again, for the patch before: {_WHY}",
)
REFUSED_LATE = _unsent_patch(
    target="vllm.v1.engine.async_llm:AsyncLLM.add_request",
    parameters=(
        "self",
        "request_id",
        "prompt",
        "params",
        "arrival_time",
        "lora_request",
        "tokenization_kwargs",
        "trace_headers",
        "priority",
        "data_parallel_rank",
        "session_id",
        "prompt_text",
        "reasoning_ended",
        "reasoning_parser_kwargs",
        "kv_hints",
    ),
    wrap=_wrap_add_request,
    why="takes notes back where the queue is full (`--max-num-queued-reqs`) or a client goes before sending: "
    + _WHY,
)
