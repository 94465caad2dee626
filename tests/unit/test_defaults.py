"""Engine arguments chosen for the machine."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from mmspec.defaults import engine_defaults, keep_thread_count

# In a process of its own, since numba reads its settings once. Its first call in prompt lookup is the one used here.
OPENMP_AFTER_NUMBA = """
import json
import torch
torch.set_num_threads(3)
torch.get_num_threads()  # sets OpenMP's count where it is asked for the first time
import numba
numba.get_num_threads()
print(json.dumps([torch.get_num_threads(), numba.threading_layer()]))
"""


@pytest.fixture(autouse=True)
def cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmspec.defaults.is_cpu_build", lambda: True)
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)


def test_a_cpu_gets_a_small_kv_cache_and_no_compilation() -> None:
    defaults = engine_defaults("some/model", {})

    assert defaults == {"enforce_eager": True, "kv_cache_memory_bytes": 2**30, "max_model_len": -1}


def test_the_pocket_model_runs_in_float32() -> None:
    assert engine_defaults("pocket", {})["dtype"] == "float32"


def test_what_a_user_gives_is_not_overridden() -> None:
    given = {"enforce_eager", "kv_cache_memory_bytes", "dtype"}

    assert engine_defaults("pocket", given) == {}


def test_the_environment_variable_of_vllm_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "2")

    assert "kv_cache_memory_bytes" not in engine_defaults("pocket", {})


def test_a_gpu_keeps_the_defaults_of_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmspec.defaults.is_cpu_build", lambda: False)

    assert engine_defaults("pocket", {}) == {}


def openmp_after_numba(**environment: str) -> tuple[int, str]:
    """OpenMP's thread count, 3 before numba starts with 2 threads, and the library that numba starts them with."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    done = subprocess.run(
        [sys.executable, "-c", OPENMP_AFTER_NUMBA],
        env=mine | {"NUMBA_NUM_THREADS": "2"} | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    threads, layer = json.loads(done.stdout)
    return threads, layer


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What `mmspec.defaults` takes for this process's environment, which keeps the variable out of other tests."""
    stand_in: dict[str, str] = {}
    monkeypatch.setattr("mmspec.defaults.os", SimpleNamespace(environ=stand_in))
    return stand_in


@pytest.mark.slow
def test_prompt_lookup_leaves_openmp_as_it_is(environment: dict[str, str]) -> None:
    keep_thread_count()

    assert openmp_after_numba(**environment) == (3, "workqueue")


@pytest.mark.slow
def test_numba_left_alone_changes_openmp() -> None:
    """Why the variable is set."""
    threads, layer = openmp_after_numba()
    if layer != "omp":
        pytest.skip(f"numba starts its threads with {layer} here, which leaves OpenMP alone")

    assert threads == 2


def test_a_threading_layer_that_the_user_chose_stays(environment: dict[str, str]) -> None:
    environment["NUMBA_THREADING_LAYER"] = "tbb"

    keep_thread_count()

    assert environment == {"NUMBA_THREADING_LAYER": "tbb"}


def test_beside_a_gpu_numba_is_left_alone(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mmspec.defaults.is_cpu_build", lambda: False)

    keep_thread_count()

    assert environment == {}
