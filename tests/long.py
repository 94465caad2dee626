"""Tests that take minutes and add little to the suite: run when asked for."""

import os

import pytest

LONG = pytest.mark.skipif(
    os.environ.get("MMSPEC_LONG_TESTS") != "1", reason="takes minutes: MMSPEC_LONG_TESTS=1 runs it"
)
