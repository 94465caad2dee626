"""Keeps features of old weights from being served, in engines with a vision-feature cache.

vLLM 0.32 tells a connector neither that weights were updated nor that the encoder cache was emptied.
"""

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from mmspec.compat import SUPPORTED
from mmspec.encoders.harmless import is_harmless
from mmspec.patches.patch import Patch

_CORE = "vllm.v1.engine.core:EngineCore"
_STALE = "_mmspec_stale_pictures"  # on the engine's core: what vLLM's own cache holds of earlier weights
_log = logging.getLogger("vllm.plugins.mmspec")

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
        functions = args if method == "apply_model" else (method,)
        harmless = method in _HARMLESS or all(map(is_harmless, functions))
        if not harmless and (connector := _connector(self)) is not None:
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


def _wrap_sleep(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def sleep(self: Any, level: int = 1, mode: Any = "abort") -> Any:
        if level > 1 and (connector := _connector(self)) is not None:
            connector.doubt_weights()
        return original(self, level, mode)

    return sleep


def _wrap_add(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def add_request(self: Any, request: Any, request_wave: int = 0) -> None:
        connector = _connector(self) if request.mm_features else None
        if connector is not None:
            if connector.weights_in_doubt:
                _settle(self, connector)
            if _STALE in vars(self):
                _forget_stale(self)
        original(self, request, request_wave)

    return add_request


def _connector(core: Any) -> Any:
    """The engine's connector if it is ours."""
    connector = getattr(getattr(core, "scheduler", None), "ec_connector", None)
    return connector if hasattr(connector, "doubt_weights") else None


def _settle(core: Any, connector: Any) -> None:
    """Looks at the weights in memory, and empties vLLM's own cache, which may hold features of others."""
    connector.settle_weights(_fingerprints(core))
    if core.scheduler.has_unfinished_requests():
        vars(core)[_STALE] = set(core.scheduler.encoder_cache_manager.cached)
        return
    vars(core).pop(_STALE, None)
    core.scheduler.reset_encoder_cache()
    core.model_executor.reset_encoder_cache()
    connector.device_cleared()


def _fingerprints(core: Any) -> Sequence[str | None]:
    from mmspec.encoders.cache.connector.memory import tower_fingerprint

    try:
        found: Sequence[str | None] = core.model_executor.collective_rpc(tower_fingerprint)
        return found
    except Exception:  # a model that is built otherwise, no memory: the cache is not worth an engine
        _log.exception("encoder cache: the vision tower's weights cannot be looked at")
        return [None]


def _forget_stale(core: Any) -> None:
    """Drops what vLLM's own cache holds of earlier weights, as soon as no running request needs it any more.

    As its manager does for room: the workers are told with the next step.
    """
    manager = core.scheduler.encoder_cache_manager
    stale = vars(core)[_STALE]
    for name in stale & manager.freeable.keys():
        manager.num_free_slots += manager.freeable.pop(name)
        del manager.cached[name], manager.num_embeds_by_hash[name]
        manager.freed.append(name)
    stale &= manager.cached.keys()
    if not stale:
        del vars(core)[_STALE]


_WHY = (
    "after an update of the weights the features of the old ones would be found in the vision-feature cache, and in "
    "vLLM's own unless the user empties it"
)
_weights_patch = functools.partial(
    Patch,
    upstream="vLLM issue 44910 has it for vLLM's own cache; connectors are not told",
    versions=SUPPORTED,
    remove_when="vLLM tells encoder-cache connectors of new weights",
    lazy=True,
)

NOTICE_CALLS = _weights_patch(
    target=f"{_CORE}.collective_rpc",
    parameters=("self", "method", "timeout", "args", "kwargs"),
    wrap=_wrap_rpc,
    why=f"notices calls that may update weights: {_WHY}",
)
NOTICE_SLEEP = _weights_patch(
    target=f"{_CORE}.sleep",
    parameters=("self", "level", "mode"),
    wrap=_wrap_sleep,
    why=f"notices sleep of level 2, which throws the weights away: {_WHY}",
)
NOTICE_RESET = _weights_patch(
    target=f"{_CORE}.reset_encoder_cache",
    parameters=("self",),
    wrap=_wrap_reset,
    why=f"notices what vLLM asks users to call after an update: {_WHY}",
)
LOOK_AT_WEIGHTS = _weights_patch(
    target=f"{_CORE}.add_request",
    parameters=("self", "request", "request_wave"),
    wrap=_wrap_add,
    why=f"looks at the weights in memory before the next picture is taken: {_WHY}",
)
