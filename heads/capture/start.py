"""Starts the serving engine so that it hands out states and features."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mmspec.heads.capture.engine import CaptureEngine
from mmspec.heads.capture.target import CaptureTarget

_HOME = "mmspec.heads.capture"


def engine_arguments(target: CaptureTarget, spool: Path) -> dict[str, Any]:
    """The arguments of `vllm.LLM` that make an engine hand out states and features into `spool`."""
    layers = [*target.aux_layer_ids, target.num_layers]
    arguments: dict[str, Any] = {
        "dtype": target.dtype,
        "speculative_config": {
            "method": "extract_hidden_states",
            "num_speculative_tokens": 1,
            "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": layers}},
        },
        "kv_transfer_config": {
            "kv_connector": "StatesConnector",
            "kv_connector_module_path": f"{_HOME}.states_connector",
            "kv_role": "kv_producer",
            "kv_connector_extra_config": {
                "shared_storage_path": str(spool),
                "use_synchronization_lock": False,
            },
        },
        "worker_extension_cls": f"{_HOME}.worker.CaptureWorker",
        # States lie in the cache of keys and values: with prefix caching those of an answer are found again as
        # its decode steps left them, and extraction costs one step a sequence.
        "enable_prefix_caching": True,
    }
    if target.multimodal:
        arguments["ec_transfer_config"] = {
            "ec_connector": "FeaturesConnector",
            "ec_connector_module_path": f"{_HOME}.features_connector",
            "ec_role": "ec_both",
            "ec_connector_extra_config": {"folder": str(spool)},
        }
        # Its two halves count uses, and a prompt that is sent twice would put them out of step.
        arguments["mm_processor_cache_gb"] = 0
        # Switches the patches on: extraction is a draft to vLLM, and stock vLLM's CPU build draws the answers of
        # drafting engines with the wrong temperature (vLLM issue 55005).
        arguments["additional_config"] = {"mmspec": {}}
    return arguments


@contextmanager
def running_engine(target: CaptureTarget, spool: Path, **vllm_kwargs: Any) -> Iterator[CaptureEngine]:
    """A `vllm.LLM` for capture, ended with the block; arguments given here win."""
    from vllm import LLM
    from vllm.distributed import cleanup_dist_env_and_memory

    llm = LLM(model=target.model, **(engine_arguments(target, spool) | vllm_kwargs))
    try:
        yield CaptureEngine(llm, target, spool)
    finally:
        llm.llm_engine.engine_core.shutdown()
        del llm
        cleanup_dist_env_and_memory()
