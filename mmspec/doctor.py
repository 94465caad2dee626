"""What works in this environment, what does not, and the command that mends it."""

import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from mmspec import __version__
from mmspec.compat import SUPPORTED, mismatch
from mmspec.environment import SHIMS, Fault, Interpreter, diagnose
from mmspec.environment.cache import NEEDED_GIB, cache_folder, pocket
from mmspec.environment.faults import UNUSED
from mmspec.environment.machine import cpu_count, free_gib, memory_gib
from mmspec.environment.probes import Probe, probe, versions

_ARCTIC = "arctic_inference"
_LISTED = (
    "vllm",
    "torch",
    "torchvision",
    "transformers",
    "triton",
    "speculators",
    "gradio",
    _ARCTIC,
)
# vLLM, a small model, and a KV cache of 1 GiB.
_MEMORY_GIB = 4.0

Said = Callable[[str], None] | None


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"
    BROKEN = "broken"


@dataclass(frozen=True)
class Check:
    """One line of the report; `command` is what mends it, None where there is nothing to mend."""

    name: str
    status: Status
    detail: str
    command: str | None = None


@dataclass(frozen=True)
class Examination:
    """Everything that was found out."""

    checks: list[Check]
    faults: list[Fault]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        """Whether everything works that mmspec cannot do without."""
        return all(check.status is not Status.BROKEN for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        shown = ("package", "problem", "command")
        return {
            "ok": self.healthy,
            **self.facts,
            "faults": [{name: getattr(fault, name) for name in shown} for fault in self.faults],
            "checks": [asdict(check) for check in self.checks],
        }


def examine(interpreter: Interpreter | None = None, timeout: float = 60.0, said: Said = None) -> Examination:
    """Imports the heavy packages in subprocesses, side by side, and looks at the machine.

    Args:
        interpreter: whose environment, by default this one.
        timeout: for each import, in seconds.
        said: is told of each import that ends.
    """
    interpreter = interpreter or Interpreter()
    probes = _probe_all(interpreter, timeout, said)
    faults = diagnose(interpreter, probes)
    found = versions(interpreter, _LISTED)
    cache = cache_folder()
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "executable": str(interpreter.executable),
        "platform": f"{platform.system()} {platform.machine()}",
        "versions": {"mmspec": __version__, **{name: found.get(name) for name in _LISTED}},
        "cuda": probes["torch"].values.get("cuda"),
        "gpus": probes["torch"].values.get("gpus", 0),
        "device": probes["vllm"].values.get("device"),
        "vllm_supported": mismatch(found.get("vllm")) is None,
        "plugin_loaded": probes["vllm"].values.get("plugin", False),
        "cpus": cpu_count(),
        "memory_gib": memory_gib(),
        "cache": {"folder": str(cache), "free_gib": free_gib(cache)},
        "pocket": _pocket(),
        "drafts": {"ngram": True, "suffix": _ARCTIC in found},
        "shims": [
            {"name": shim.name, "installed": bool(shim.installed(interpreter.site_packages)), "why": shim.why}
            | {"until": shim.until}
            for shim in SHIMS
        ],
    }
    return Examination(_checks(facts, probes, faults), faults, facts)


def _probe_all(interpreter: Interpreter, timeout: float, said: Said) -> dict[str, Probe]:
    """One import of vLLM shows that torch and torchvision work, too; they are tried alone when it fails."""
    probes = probe(interpreter, ("vllm", *UNUSED), timeout, said)
    vllm, alone = probes["vllm"], ("torch", "torchvision")
    if not vllm.works:
        return probes | probe(interpreter, alone, timeout, said)
    found = versions(interpreter, alone)
    return probes | {name: Probe(name, True, found[name], None, vllm.values) for name in alone}


def _checks(facts: dict[str, Any], probes: dict[str, Probe], faults: list[Fault]) -> list[Check]:
    checks = [Check("python", Status.OK, f"{facts['python']} on {facts['platform']}, {sys.prefix}")]
    faulty = {fault.package for fault in faults}
    if "torch" not in faulty:
        build = f"CUDA {facts['cuda']}, {facts['gpus']} GPUs" if facts["cuda"] else "without CUDA"
        checks.append(Check("torch", Status.OK, f"{facts['versions']['torch']}, {build}"))
    for fault in faults:
        essential = fault.package in ("torch", "torchvision")
        status = Status.BROKEN if essential else Status.WARNING
        checks.append(Check(fault.package, status, fault.problem, fault.command))
    checks += [_vllm(facts, probes["vllm"]), _plugin(facts, probes["vllm"])]
    checks += [_shims(facts), _drafts(facts), *_machine(facts), _pocket_check(facts)]
    return checks


def _vllm(facts: dict[str, Any], found: Probe) -> Check:
    extra = "pip install 'mmspec[cpu]' (with an NVIDIA GPU: 'mmspec[gpu]')"
    if not found.installed or not facts["vllm_supported"]:
        return Check("vllm", Status.BROKEN, mismatch(facts["versions"]["vllm"]) or "", extra)
    if facts["device"] is None:
        return Check("vllm", Status.BROKEN, f"{found.version} does not import: {found.error}", "make install")
    return Check("vllm", Status.OK, f"{found.version} on {facts['device']}; supported: {SUPPORTED}")


def _plugin(facts: dict[str, Any], vllm: Probe) -> Check:
    if facts["plugin_loaded"]:
        return Check("plugin", Status.OK, "loaded by vLLM through vllm.general_plugins")
    if os.environ.get("VLLM_PLUGINS") is not None:
        detail = f"VLLM_PLUGINS={os.environ['VLLM_PLUGINS']!r} leaves it out"
        return Check("plugin", Status.BROKEN, detail, "unset VLLM_PLUGINS")
    detail = f"vLLM did not load it: {vllm.error or 'no entry point'}"
    return Check(
        "plugin", Status.BROKEN, detail, "make install, or pip install --force-reinstall --no-deps mmspec"
    )


def _shims(facts: dict[str, Any]) -> Check:
    names = [shim["name"] for shim in facts["shims"] if shim["installed"]]
    return Check("shims", Status.OK, ", ".join(names) or "none needed")


def _drafts(facts: dict[str, Any]) -> Check:
    missing = "" if facts["drafts"]["suffix"] else "; suffix: pip install arctic-inference==0.1.1 (optional)"
    names = [name for name, there in facts["drafts"].items() if there]
    return Check("drafts", Status.OK, ", ".join([*names, "draft_model", "eagle3"]) + missing)


def _machine(facts: dict[str, Any]) -> list[Check]:
    memory, cache = facts["memory_gib"], facts["cache"]
    enough = memory is None or memory >= _MEMORY_GIB
    room = cache["free_gib"] >= NEEDED_GIB
    return [
        Check(
            "machine",
            Status.OK if enough else Status.WARNING,
            f"{facts['cpus']} CPUs, {'unknown' if memory is None else f'{memory:.1f} GiB'} of memory",
            None if enough else f"use a machine with {_MEMORY_GIB:.0f} GiB or more",
        ),
        Check(
            "cache",
            Status.OK if room else Status.WARNING,
            f"{cache['folder']}, {cache['free_gib']:.1f} GiB free",
            None if room else f"free {NEEDED_GIB:.1f} GiB there",
        ),
    ]


def _pocket_check(facts: dict[str, Any]) -> Check:
    found = facts["pocket"]
    if found["problem"] is not None:
        return Check("pocket", Status.WARNING, found["problem"])
    if found["built"]:
        return Check("pocket", Status.OK, f"built in {found['folder']}")
    return Check("pocket", Status.OK, "not built yet: built when first used, or by mmspec pocket build")


def _pocket() -> dict[str, Any]:
    found = pocket()
    folder = None if found.folder is None else str(found.folder)
    return {"built": found.folder is not None, "folder": folder, "problem": found.problem}
