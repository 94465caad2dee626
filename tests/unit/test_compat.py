"""The versions of vLLM that are accepted."""

import pytest

from mmspec.compat import SUPPORTED, mismatch


@pytest.mark.parametrize("version", ["0.32.0", "0.32.0+cpu", "0.33.1", "0.33.0rc1"])
def test_a_supported_version_is_accepted(version: str) -> None:
    assert mismatch(version) is None


@pytest.mark.parametrize("version", ["0.31.2", "0.34.0", "1.0.0", "dev", ""])
def test_another_version_is_refused_with_the_range(version: str) -> None:
    assert SUPPORTED in (mismatch(version) or "")


def test_no_vllm_is_refused_with_what_to_install() -> None:
    assert "install" in (mismatch(None) or "")
