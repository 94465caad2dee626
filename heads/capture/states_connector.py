"""vLLM's hidden-state extraction for capture: states leave the engine as one file a request, on CPUs and GPUs.

vLLM's method `extract_hidden_states` writes the states of chosen layers into a KV cache of their own while the
target runs; its example connector saves them when a request ends. Two things are missing there: requests that only
generate answers should not be saved, and the copy uses CUDA streams, which a CPU has none of.
"""

import os
from typing import Any

import torch
from safetensors.torch import save_file
from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
    ExampleHiddenStatesConnector,
    extract_from_kv_cache,
)

from mmspec.heads.capture.spool import SAVE, STATES, TOKENS


class StatesConnector(ExampleHiddenStatesConnector):
    """Saves the states of a request's prompt when it was asked to; a file that exists is whole."""

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        if not (request.kv_transfer_params or {}).get(SAVE):
            self._request_filenames.pop(request.request_id, None)
            return False, None
        answer: tuple[bool, dict[str, Any] | None] = super().request_finished(request, block_ids)
        return answer

    def _submit_async_write(self, pending: Any) -> None:
        if self._kv_cache.device.type != "cpu":
            super()._submit_async_write(pending)
            return
        if not self._is_tp_rank_zero:
            return
        blocks = torch.tensor(pending.block_ids)[:, None] * self._block_size
        slots = (blocks + torch.arange(self._block_size)).flatten()
        states = extract_from_kv_cache(self._kv_cache, slots, len(pending.token_ids))
        tensors = {STATES: states.contiguous(), TOKENS: pending.token_ids}
        done = _Done()
        self._write_tensors(tensors, done, pending.filename, None)
        self._req_copy_events[pending.req_id] = done

    @staticmethod
    def _write_tensors(
        tensors: dict[str, torch.Tensor], event: Any, filename: str, lock_fd: int | None
    ) -> None:
        event.synchronize()
        os.makedirs(os.path.dirname(filename), exist_ok=True)
        save_file(tensors, filename + ".part")
        os.replace(filename + ".part", filename)


class _Done:
    """Stands in for the CUDA event of a copy that has ended."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        return None
