"""An encoder-cache connector that hands out what the vision tower made of each picture, and never loads anything."""

import os
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase, ECConnectorMetadata

from mmspec.heads.capture.spool import FEATURES, feature_path


class FeaturesConnector(ECConnectorBase):
    """Saves the encoder's output for each picture when it is encoded; a file that exists is whole."""

    def __init__(self, vllm_config: Any, role: Any) -> None:
        super().__init__(vllm_config, role)
        self._folder = Path(vllm_config.ec_transfer_config.get_from_extra_config("folder", ""))

    def save_caches(self, encoder_cache: dict[str, Any], mm_hash: str, **kwargs: Any) -> None:
        from vllm.distributed.parallel_state import get_tensor_model_parallel_rank

        path = feature_path(self._folder, mm_hash)
        if get_tensor_model_parallel_rank() or path.exists():
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".part")
        save_file({FEATURES: encoder_cache[mm_hash].detach().cpu().contiguous()}, draft)
        os.replace(draft, path)

    def start_load_caches(self, encoder_cache: dict[str, Any], **kwargs: Any) -> None:
        return None

    def has_cache_item(self, identifier: str) -> bool:
        return False

    def update_state_after_alloc(self, request: Any, index: int) -> None:
        return None

    def build_connector_meta(self, scheduler_output: Any) -> ECConnectorMetadata:
        return ECConnectorMetadata()

    def request_finished(self, request: Any) -> tuple[bool, dict[str, Any] | None]:
        return False, None
