"""A real vLLM engine in this process, for the length of a `with` block."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

DEFAULTS: dict[str, Any] = {
    "dtype": "float32",
    "enforce_eager": True,  # with a given cache size this also skips the warm-up
    "max_model_len": 512,
    "max_num_seqs": 8,
    "kv_cache_memory_bytes": 32 << 20,
    "limit_mm_per_prompt": {"image": 2},
    "seed": 0,
}


@contextmanager
def running_engine(model: str, **arguments: Any) -> Iterator[Any]:
    """Yields a `vllm.LLM` in this process and takes it down after, whatever happened.

    `VLLM_ENABLE_V1_MULTIPROCESSING=0` must have been set before vLLM was imported.
    """
    import torch

    # Prompt lookup lets numba reset OpenMP's thread count to its own. After such a change vLLM's packed linear
    # layers on the CPU give wrong products (seen in 0.32), so numba must start with the count that holds.
    os.environ["NUMBA_NUM_THREADS"] = str(torch.get_num_threads())

    from vllm import LLM
    from vllm.distributed import cleanup_dist_env_and_memory

    _bind_cpu_kernels()
    llm = None
    try:
        llm = LLM(model=model, **{**DEFAULTS, **arguments})
        yield llm
    finally:
        if llm is not None:
            llm.llm_engine.engine_core.shutdown()
        del llm
        cleanup_dist_env_and_memory()


@cache
def _bind_cpu_kernels() -> None:
    """Binds vLLM's C++ kernels once, where every engine would do it again.

    The binding walks all objects of all modules and dies on llvmlite's, which are there as soon as an engine
    with prompt lookup has imported numba (vLLM 0.32: `AttributeError: '_lib_fn_wrapper' object has no
    attribute 'get'`). So a second engine in the same process would not start.
    """
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        current_platform.register_triton_kernel_overrides()
        type(current_platform).register_triton_kernel_overrides = classmethod(lambda cls: None)
