"""Engine arguments chosen for the machine."""

import pytest

from mmspec.defaults import engine_defaults


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
