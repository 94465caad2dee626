"""The connector's side in the scheduler: knows which pictures are in the cache, and promises them to the workers."""

from functools import partial
from typing import TYPE_CHECKING, Any

from mmspec.encoders.cache.connector.keyring import Keyring
from mmspec.encoders.cache.connector.lookups import Lookups
from mmspec.encoders.cache.connector.messages import Load, StepMetadata, WorkerReport
from mmspec.encoders.cache.keys import FeatureKey
from mmspec.encoders.cache.store import TieredStore
from mmspec.encoders.cache.tier import Held
from mmspec.encoders.fastv.prompt import VISUAL
from mmspec.encoders.fastv.salt import given_salt

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request

_IDLE_WAIT_SECONDS = 0.005


class SchedulerSide:
    """One for each engine; vLLM's scheduler calls it, and so do the patches that watch the weights.

    A request whose pictures are being looked up is deferred (`ready`). What is found is held and will be loaded in the
    step that first needs it; what is not found is encoded in that step, and saved.

    Args:
        loads, saves: whether this engine does so, by its role.
        beside_worker: whether the one worker is in this process, and uses the same `store`.
    """

    def __init__(
        self, store: TieredStore, keyring: Keyring, *, loads: bool, saves: bool, beside_worker: bool
    ) -> None:
        self._store = store
        self.keyring = keyring
        self._loading = loads
        self._saving = saves
        self._lookups = Lookups(store, keep=beside_worker)
        self._on_device: set[str] = set()  # identifiers that vLLM's own cache holds
        self._loads: dict[str, Load] = {}  # of the step that is being scheduled
        self._saves: dict[str, tuple[str, FeatureKey]] = {}  # with the id of the request that encodes
        self._promised: set[str] = set()  # identifiers of the loads that the last step was sent with
        self._held: dict[str, Held] = {}  # by token, until every worker has loaded it

    def ready(self, request: "Request", computed_tokens: int) -> bool:
        """Whether it is known of all pictures that the request still needs if they are in the cache."""
        features = request.mm_features
        if not self._loading or _end(features[-1]) <= computed_tokens:
            return True
        pending = False
        for feature in features:
            if _end(feature) > computed_tokens and feature.identifier not in self._on_device:
                key = partial(self._key, request, feature)
                pending |= self._lookups.pending(feature.identifier, request.request_id, key)
        return not pending

    def has(self, identifier: str) -> bool:
        """Whether a picture can be loaded in the step that is being scheduled."""
        return self._lookups.held(identifier) is not None

    def promised(self, identifier: str) -> bool:
        """Whether the step that was scheduled last loads the picture."""
        return identifier in self._promised

    def allocated(self, request: "Request", index: int) -> None:
        """vLLM made room for a picture in its own cache: it is loaded where it can be, otherwise encoded."""
        feature = request.mm_features[index]
        identifier = feature.identifier
        found = self._lookups.held(identifier)
        self._on_device.add(identifier)
        if found is not None:
            key, held = found
            rows = request.get_num_encoder_embeds(index)
            self._loads[identifier] = Load(identifier, key, held, rows, request.request_id, index)
            self._lookups.take(identifier)
            return
        self._lookups.forget(identifier)
        if self._saving and (key_of := self._key(request, feature)) is not None:
            self._saves[identifier] = request.request_id, key_of

    def metadata(self, output: "SchedulerOutput") -> StepMetadata:
        """What the workers do in this step.

        A request that was scheduled and then preempted in the same step takes its loads with it: a worker knows
        nothing of it in this step, and could not encode what it fails to load. Its picture may be encoded all the
        same, for another request of the step that counts on it, so the key to save it by stays.
        """
        if not output.total_num_scheduled_tokens:
            self._lookups.wait(_IDLE_WAIT_SECONDS)  # nothing to compute, and the searches need the processor
        scheduled = output.num_scheduled_tokens
        loads = [load for load in self._loads.values() if load.request_id in scheduled]
        encoded = {name for name, (request_id, _) in self._saves.items() if request_id in scheduled}
        for load in self._loads.values():
            if load.request_id in scheduled:
                self._held[load.held.token] = load.held
            else:
                self._lookups.release(load.held)
        self._on_device -= {*self._loads, *self._saves} - {*(load.identifier for load in loads), *encoded}
        self._on_device.difference_update(
            identifier
            for identifier in output.free_encoder_mm_hashes
            if identifier not in self._loads and identifier not in self._saves
        )
        saves = {name: key for name, (_, key) in self._saves.items()}
        self._loads, self._saves = {}, {}
        self._promised = {load.identifier for load in loads}
        return StepMetadata(loads, saves, output.scheduled_encoder_inputs)

    def heard(self, report: WorkerReport) -> None:
        """The workers have loaded something."""
        for token in report.done:
            if (held := self._held.pop(token, None)) is not None:
                self._lookups.release(held)

    def finished(self, request: "Request") -> None:
        self._lookups.finished(request.request_id)

    def device_cleared(self) -> None:
        """vLLM's own cache is empty; what was found goes with it, since weights may have changed."""
        self._on_device.clear()
        self._lookups.clear()

    def close(self) -> None:
        self._lookups.close()
        for held in self._held.values():
            self._store.release(held)

    def _key(self, request: "Request", feature: Any) -> FeatureKey | None:
        if feature.modality not in VISUAL:
            return None
        return self.keyring.key(feature.identifier, given_salt(request.cache_salt))


def _end(feature: Any) -> int:
    position = feature.mm_position
    end: int = position.offset + position.length
    return end
