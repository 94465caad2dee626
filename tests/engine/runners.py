"""vLLM's two model runners on a CPU: which environment makes an engine use which."""

import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

RUNNERS = ("v1", "v2")

_ENVIRONMENT = {
    "v1": {"VLLM_USE_V2_MODEL_RUNNER": "0"},
    "v2": {"VLLM_USE_V2_MODEL_RUNNER": "1", "TRITON_INTERPRET": "1"},
}
_EVERYWHERE = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",  # the models are too small for two threads to help
}


def runner_environment(runner: str) -> dict[str, str]:
    """Returns this process's environment with what the runner wants; it must hold before vLLM is imported."""
    return {**os.environ, **_EVERYWHERE, **_ENVIRONMENT[runner]}


def in_process_environment() -> dict[str, str]:
    """Returns what a process wants that runs engines of the V1 runner in itself."""
    return {**_EVERYWHERE, **_ENVIRONMENT["v1"]}


def prepare_runner(runner: str) -> None:
    """Makes vLLM, not yet imported, accept Triton's interpreter as its Triton for the V2 runner.

    vLLM's CPU build turns Triton off unless there is a backend named "cpu"; the interpreter needs none.
    """
    if "vllm" in sys.modules:
        raise RuntimeError("prepare_runner comes too late: vLLM is imported")
    if runner == "v2":
        from triton.backends import backends

        backends["cpu"] = SimpleNamespace(driver=_Driver, compiler=_Compiler)
        _let_interpreter_take_integer_masks()


def _let_interpreter_take_integer_masks() -> None:
    """The compiler takes a mask that is the `&` of truth values; Triton 3.9's interpreter may make it an integer.

    vLLM's prompt-lookup kernel meets it: `ValueError: mask has unsupported dtype`.
    """
    from triton.runtime.interpreter import InterpreterBuilder

    def with_boolean_mask(load_or_store: Callable[..., Any], position: int) -> Callable[..., Any]:
        def call(builder: Any, *arguments: Any) -> Any:
            mask = arguments[position]
            mask.data = mask.data.astype(bool)
            return load_or_store(builder, *arguments)

        return call

    InterpreterBuilder.create_masked_load = with_boolean_mask(InterpreterBuilder.create_masked_load, 1)
    InterpreterBuilder.create_masked_store = with_boolean_mask(InterpreterBuilder.create_masked_store, 2)


class _Driver:
    """What Triton takes for a device's driver; the interpreter asks it nothing, and torch's compiler what it drives."""

    @staticmethod
    def is_active() -> bool:
        return True

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cpu", 0, 1)


class _Compiler:
    """What Triton takes for a device's compiler; torch's wants its name for the keys of its cache."""

    def __init__(self, target: Any) -> None:
        pass

    @staticmethod
    def supports_target(target: Any) -> bool:
        return bool(target.backend == "cpu")

    def hash(self) -> str:
        return "interpreter"
