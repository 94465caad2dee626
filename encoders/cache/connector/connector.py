"""The class that vLLM makes, once in the scheduler and once in each worker."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from vllm.distributed.ec_transfer.ec_connector.base import (
    ECConnectorBase,
    ECConnectorMetadata,
    ECConnectorRole,
    ECConnectorWorkerMetadata,
)

from mmspec.encoders.cache.connector.encoder import encoder_of
from mmspec.encoders.cache.connector.keyring import Keyring
from mmspec.encoders.cache.connector.messages import StepMetadata, WorkerReport
from mmspec.encoders.cache.connector.options import CacheOptions
from mmspec.encoders.cache.connector.saver import Saver
from mmspec.encoders.cache.connector.scheduler_side import SchedulerSide
from mmspec.encoders.cache.connector.shared import borrow, give_back
from mmspec.encoders.cache.connector.stats import CachePromMetrics, CacheStats, StatsCollector
from mmspec.encoders.cache.connector.worker_side import Agree, WorkerSide, by_all_of
from mmspec.encoders.cache.sizes import parse_size

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import ECConnectorOutput
    from vllm.v1.request import Request

_log = logging.getLogger("vllm.plugins.mmspec")


class FeatureCacheConnector(ECConnectorBase):
    """Between vLLM's calls and the two sides; the engine asked for goes by vLLM's `engine_id`."""

    def __init__(self, vllm_config: "VllmConfig", role: ECConnectorRole) -> None:
        super().__init__(vllm_config, role)
        transfer = vllm_config.ec_transfer_config
        assert transfer is not None  # checked by the base class
        options = CacheOptions.parse(transfer.ec_connector_extra_config)
        self._engine = f"{transfer.engine_id}/{vllm_config.parallel_config.data_parallel_rank}"
        self._store, beside = borrow(self._engine, lambda: options.open(self._engine))
        self._scheduler: SchedulerSide | None = None
        self._worker: WorkerSide | None = None
        if role is ECConnectorRole.SCHEDULER:
            keyring = Keyring(encoder_of(vllm_config), options.namespace, trust_ids=options.trust_ids)
            self._scheduler = SchedulerSide(
                self._store,
                keyring,
                loads=transfer.is_ec_consumer,
                saves=transfer.is_ec_producer,
                beside_worker=beside,
            )
            self._stats = StatsCollector(self._store, counts=not beside)
            for line in self._store.report():
                _log.info("%s", line)
        else:
            saver = None
            if transfer.is_ec_producer and _is_first_rank():
                saver = Saver(self._store, parse_size(options.queue_size, "queue_size"))
            self._worker = WorkerSide(self._store, saver, _device(vllm_config), _agreement())

    # In the worker

    def start_load_caches(self, encoder_cache: dict[str, torch.Tensor], **kwargs: Any) -> None:
        self._in_worker.load(self._step, encoder_cache)

    def save_caches(self, encoder_cache: dict[str, torch.Tensor], mm_hash: str, **kwargs: Any) -> None:
        self._in_worker.save(self._step, encoder_cache, mm_hash)

    def build_connector_worker_meta(self) -> ECConnectorWorkerMetadata | None:
        return self._in_worker.report()

    # In the scheduler

    def has_cache_item(self, identifier: str) -> bool:
        return self._in_scheduler.has(identifier)

    def ensure_cache_available(self, request: "Request", num_computed_tokens: int) -> bool:
        return self._in_scheduler.ready(request, num_computed_tokens)

    def update_state_after_alloc(self, request: "Request", index: int) -> None:
        self._in_scheduler.allocated(request, index)

    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> ECConnectorMetadata:
        return self._in_scheduler.metadata(scheduler_output)

    def update_connector_output(self, connector_output: "ECConnectorOutput") -> None:
        report = connector_output.ec_connector_worker_meta
        if isinstance(report, WorkerReport):
            self._in_scheduler.heard(report)
            self._stats.add(report)

    def request_finished(self, request: "Request") -> tuple[bool, dict[str, Any] | None]:
        self._in_scheduler.finished(request)
        return False, None

    # For mmspec's patches, in the scheduler's process

    def promised(self, identifier: str) -> bool:
        """Whether the step that was scheduled last loads the picture."""
        return self._in_scheduler.promised(identifier)

    @property
    def weights_in_doubt(self) -> bool:
        return self._in_scheduler.keyring.in_doubt

    def doubt_weights(self) -> None:
        """The engine's weights may have changed: until `settle_weights` no picture is found or saved."""
        self._in_scheduler.keyring.doubt()
        self._in_scheduler.device_cleared()

    def settle_weights(self, fingerprints: Sequence[str | None]) -> None:
        """The engine's weights are these, a fingerprint for each worker."""
        self._in_scheduler.keyring.settle(fingerprints)

    def device_cleared(self) -> None:
        """vLLM emptied its own encoder cache."""
        self._in_scheduler.device_cleared()

    # Both

    def get_ec_connector_stats(self) -> CacheStats | None:
        return None if self._scheduler is None else self._stats.collect()

    def shutdown(self) -> None:
        for side in (self._scheduler, self._worker):
            if side is not None:
                side.close()
        if self._scheduler is not None:
            self._stats.close()
        self._scheduler = self._worker = None
        give_back(self._engine)

    # In the front end

    @classmethod
    def build_ec_connector_stats(cls, data: dict[str, Any] | None = None) -> CacheStats | None:
        return CacheStats(data or {})

    @classmethod
    def build_prom_metrics(cls, *arguments: Any) -> CachePromMetrics:
        return CachePromMetrics(*arguments)

    @property
    def _in_scheduler(self) -> SchedulerSide:
        assert self._scheduler is not None, "a call for the scheduler's side"
        return self._scheduler

    @property
    def _in_worker(self) -> WorkerSide:
        assert self._worker is not None, "a call for the worker's side"
        return self._worker

    @property
    def _step(self) -> StepMetadata:
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, StepMetadata)
        return metadata


def _is_first_rank() -> bool:
    from vllm.distributed.parallel_state import get_tensor_model_parallel_rank

    return get_tensor_model_parallel_rank() == 0


def _agreement() -> Agree | None:
    """Every rank of a tensor-parallel group encodes a picture, or none does."""
    from vllm.distributed.parallel_state import get_tp_group

    group = get_tp_group()
    return by_all_of(group.cpu_group) if group.world_size > 1 else None


def _device(vllm_config: "VllmConfig") -> torch.device:
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        return torch.device("cpu")
    return torch.device(current_platform.device_type, torch.accelerator.current_device_index())
