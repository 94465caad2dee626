"""Engine arguments that make sense on this machine; what a user gives always wins."""

import os
from collections.abc import Collection
from typing import Any

from mmspec.compat import is_cpu_build
from mmspec.models import POCKET

_GIB = 1 << 30


def engine_defaults(model: str, given: Collection[str]) -> dict[str, Any]:
    """Arguments to add for `model` to those named in `given`; empty on a GPU.

    Args:
        model: the name as the user gave it, so that the pocket VLM is recognised.
        given: names of the engine arguments that the user set.
    """
    if not is_cpu_build():
        return {}
    # Compiling takes longer than it saves on the small models that people run on a CPU.
    defaults: dict[str, Any] = {"enforce_eager": True}
    # Without a size vLLM takes 92 % of the machine's memory for the KV cache. An explicit size also spares
    # the warm-up of eager engines.
    if (
        not {"kv_cache_memory_bytes", "gpu_memory_utilization"} & set(given)
        and not _kv_space_in_environment()
    ):
        defaults["kv_cache_memory_bytes"] = _GIB
        defaults["max_model_len"] = -1  # as long as fits in there
    if model == POCKET:
        # bfloat16 is slower than float32 on a CPU without AMX, and float32 keeps drafting exactly lossless.
        defaults["dtype"] = "float32"
    return {name: value for name, value in defaults.items() if name not in given}


def keep_thread_count() -> None:
    """Keeps numba, which prompt lookup imports, away from OpenMP on a CPU, here and in processes started from here.

    By default numba sets OpenMP's thread count to its own, and after such a change vLLM's packed linear layers give
    wrong products (seen in 0.32).
    """
    if is_cpu_build():
        os.environ.setdefault("NUMBA_THREADING_LAYER", "workqueue")


def _kv_space_in_environment() -> bool:
    return bool(os.environ.get("VLLM_CPU_KVCACHE_SPACE"))
