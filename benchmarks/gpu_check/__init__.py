"""The sections of `benchmarks/gpu_check.py`, which runs where mmspec is not installed."""

import sys
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[2]


def _use_checkout() -> None:
    """Makes mmspec importable from this checkout, `heads/` as `mmspec.heads`: what package-dir does when installed."""
    sys.path.insert(0, str(_CHECKOUT))
    import mmspec

    mmspec.__path__.append(str(_CHECKOUT))


_use_checkout()
