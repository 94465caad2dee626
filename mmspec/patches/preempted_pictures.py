"""Keeps the encoder cache's books right when a request is preempted in the step that was to encode its picture.

With priority scheduling vLLM 0.32 may preempt a request that it has scheduled in the same step. The picture then goes
unencoded, but stays entered in the encoder cache: the next request that needs it ends the engine.
"""

import functools
from collections.abc import Callable
from typing import Any

from mmspec.compat import SUPPORTED
from mmspec.patches.configured import is_configured
from mmspec.patches.patch import Patch

_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"
_ENTERED = "_mmspec_entered"  # on the scheduler: requests and pictures that this step entered in the cache


def _wrap_allocate(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def _allocate_encoder_inputs(
        self: Any, request: Any, input_ids: list[int], duplicate_input_ids: list[int]
    ) -> None:
        original(self, request, input_ids, duplicate_input_ids)
        if is_configured(self.vllm_config.additional_config):
            vars(self).setdefault(_ENTERED, []).extend((request, index) for index in input_ids)

    return _allocate_encoder_inputs


def _wrap_update(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def _update_after_schedule(self: Any, scheduler_output: Any) -> None:
        for request, index in vars(self).pop(_ENTERED, []):
            identifier = request.mm_features[index].identifier
            if request.request_id not in scheduler_output.num_scheduled_tokens and not _is_loaded(
                self, identifier
            ):
                _settle(self, identifier, scheduler_output)
        original(self, scheduler_output)

    return _update_after_schedule


def _is_loaded(scheduler: Any, identifier: str) -> bool:
    """Whether a connector brings the picture's features, request or not.

    Ours could not have the picture encoded if its features turned out to be gone, so it brings none for a request that
    does not run in this step, and says what it brings.
    """
    connector = scheduler.ec_connector
    if connector is None:
        return False
    brings: bool = getattr(connector, "promised", connector.has_cache_item)(identifier)
    return brings


def _settle(scheduler: Any, identifier: str, output: Any) -> None:
    """Lets another request of this step encode the picture, if one counts on it, or strikes it out."""
    manager = scheduler.encoder_cache_manager
    holders = manager.cached.get(identifier)
    if holders is None:
        return
    heirs = [name for name in holders if name in output.num_scheduled_tokens]
    if heirs:
        identifiers = [feature.identifier for feature in scheduler.requests[heirs[0]].mm_features]
        encoded = output.scheduled_encoder_inputs.setdefault(heirs[0], [])
        if identifiers.index(identifier) not in encoded:
            encoded.append(identifiers.index(identifier))
        return
    for name in holders:  # they found no room in this step, and look for the picture again in the next
        _let_go(manager, scheduler.requests[name], identifier)
    del manager.cached[identifier]
    embeds = manager.num_embeds_by_hash.pop(identifier)
    manager.num_free_slots += embeds
    if manager.freeable.pop(identifier, None) is None:
        manager.num_freeable_slots += embeds


def _let_go(manager: Any, request: Any, identifier: str) -> None:
    places = manager.request_cached_ids.get(request.request_id, set())
    places -= {place for place in places if request.mm_features[place].identifier == identifier}
    if not places:
        manager.request_cached_ids.pop(request.request_id, None)


_WHY = (
    "a request that is preempted in the step that was to encode its picture leaves an entry without features in the "
    "encoder cache; the next request that needs the picture ends the engine"
)
_pictures_patch = functools.partial(
    Patch,
    upstream="vLLM issue 38551 has the symptom; none known for this cause",
    versions=SUPPORTED,
    remove_when="vLLM strikes out, or hands over, the encoder inputs of a request that it preempts",
    lazy=True,
)

ENTERED_PICTURES = _pictures_patch(
    target=f"{_SCHEDULER}._allocate_encoder_inputs",
    parameters=("self", "request", "input_ids", "duplicate_input_ids"),
    wrap=_wrap_allocate,
    why=f"notes what a step enters, for the next patch: {_WHY}",
)
SETTLE_PREEMPTED = _pictures_patch(
    target=f"{_SCHEDULER}._update_after_schedule",
    parameters=("self", "scheduler_output"),
    wrap=_wrap_update,
    why=_WHY,
)
