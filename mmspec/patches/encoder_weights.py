"""Keeps features of old weights from being served, in engines with a vision-feature cache.

vLLM 0.32 tells a connector neither that weights were updated nor that the encoder cache was emptied.
"""

import functools
from collections.abc import Callable
from typing import Any

from mmspec.compat import SUPPORTED
from mmspec.patches.patch import Patch

_CORE = "vllm.v1.engine.core:EngineCore"

# Calls that leave the weights alone; any other may load some, as the names in use with training frameworks differ.
_HARMLESS = frozenset(
    {
        "add_lora",
        "check_health",
        "compute_weight_checksums",
        "execute_dummy_batch",
        "get_cache_block_size_bytes",
        "get_supported_tasks",
        "list_loras",
        "mmspec_kept",
        "pin_lora",
        "profile",
        "remove_lora",
        "reset_mm_cache",
        "sleep",
        "synchronize_device",
        "wake_up",
    }
)


def _wrap_rpc(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def collective_rpc(
        self: Any, method: Any, timeout: float | None = None, args: Any = (), kwargs: Any = None
    ) -> Any:
        if method not in _HARMLESS and (connector := _connector(self)) is not None:
            connector.doubt_weights()
        return original(self, method, timeout, args, kwargs)

    return collective_rpc


def _wrap_reset(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def reset_encoder_cache(self: Any) -> None:
        original(self)
        if (connector := _connector(self)) is None:
            return
        connector.device_cleared()
        if (
            not self.is_scheduler_paused()
        ):  # pausing, and sleeping, empties the cache with the weights as they were
            connector.doubt_weights()

    return reset_encoder_cache


def _wrap_add(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def add_request(self: Any, request: Any, request_wave: int = 0) -> None:
        connector = _connector(self) if request.mm_features else None
        if connector is not None and connector.weights_in_doubt:
            _settle(self, connector)
        original(self, request, request_wave)

    return add_request


def _connector(core: Any) -> Any:
    """The engine's connector if it is ours."""
    connector = getattr(getattr(core, "scheduler", None), "ec_connector", None)
    return connector if hasattr(connector, "doubt_weights") else None


def _settle(core: Any, connector: Any) -> None:
    """Looks at the weights in memory, and empties vLLM's own cache, which may hold features of others."""
    from mmspec.encoders.cache.connector.memory import tower_fingerprint

    connector.settle_weights(core.model_executor.collective_rpc(tower_fingerprint))
    if not core.scheduler.has_unfinished_requests():
        core.scheduler.reset_encoder_cache()
        core.model_executor.reset_encoder_cache()
        connector.device_cleared()


_WHY = (
    "after an update of the weights the features of the old ones would be found in the vision-feature cache, and in "
    "vLLM's own unless the user empties it"
)
_UPSTREAM = "vLLM issue 44910 has it for vLLM's own cache; connectors are not told"
_REMOVE = "vLLM tells encoder-cache connectors of new weights"

NOTICE_CALLS = Patch(
    target=f"{_CORE}.collective_rpc",
    parameters=("self", "method", "timeout", "args", "kwargs"),
    wrap=_wrap_rpc,
    why=f"notices calls that may update weights: {_WHY}",
    upstream=_UPSTREAM,
    versions=SUPPORTED,
    remove_when=_REMOVE,
    lazy=True,
)
NOTICE_RESET = Patch(
    target=f"{_CORE}.reset_encoder_cache",
    parameters=("self",),
    wrap=_wrap_reset,
    why=f"notices what vLLM asks users to call after an update: {_WHY}",
    upstream=_UPSTREAM,
    versions=SUPPORTED,
    remove_when=_REMOVE,
    lazy=True,
)
LOOK_AT_WEIGHTS = Patch(
    target=f"{_CORE}.add_request",
    parameters=("self", "request", "request_wave"),
    wrap=_wrap_add,
    why=f"looks at the weights in memory before the next picture is taken: {_WHY}",
    upstream=_UPSTREAM,
    versions=SUPPORTED,
    remove_when=_REMOVE,
    lazy=True,
)
