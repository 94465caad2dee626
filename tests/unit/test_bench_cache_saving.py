"""What `benchmarks/cache_saving.py` makes of its times."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "cache_saving.py"
    spec = importlib.util.spec_from_file_location("cache_saving", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pairs_are_compared_with_each_other(script: ModuleType) -> None:
    """On a machine that slows down a hundredfold meanwhile, saving takes 10 % of the steps right behind encoding."""
    unsaved = [4.0, *[1.0] * 8]
    saved = [4.0, *[1.1] * 4, *[1.0] * 4]
    pairs = [([slow * one for one in saved], [slow * one for one in unsaved]) for slow in (1, 10, 100)]

    found = script._compared(pairs)

    assert found["pairs"] == 3 and found["first_steps"] == 1.1
    assert found["whole"] == pytest.approx(12.4 / 12, abs=1e-4)
    assert found["step_ms"] == 10_000
