"""The patch that lets vLLM bind its CPU kernels in a process that has used numba."""

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.slow

# In a process of its own, since it imports vLLM, and only there. Importing numba loads llvmlite.
BINDING = """
import json, sys
from types import ModuleType, SimpleNamespace

import numba
from vllm.triton_utils import dispatcher
from mmspec.patches.kernel_overrides import SEARCH_WITHOUT_LLVMLITE

def kernel(x): ...

# A copy in another module, and one that a launcher holds: the two places that the search is for.
holder = sys.modules["holder"] = ModuleType("holder")
holder.copy, holder.launcher = kernel, SimpleNamespace(kernel=kernel)
wrapper = dispatcher.KernelOverride(kernel, lambda x: x)

def outcome():
    try:
        dispatcher._rebind_kernels([(kernel, wrapper)])
    except AttributeError as error:
        return str(error)
    return "bound"

loaded = set(sys.modules)
before = outcome()
holder.copy, holder.launcher.kernel = kernel, kernel
SEARCH_WITHOUT_LLVMLITE.apply()
after = outcome()
print(json.dumps({
    "before": before,
    "after": after,
    "found": holder.copy is holder.launcher.kernel is wrapper,
    "llvmlite": sorted(name for name in loaded if name.startswith("llvmlite.")),
    "lost": sorted(loaded - set(sys.modules)),
}))
"""


@pytest.fixture(scope="module")
def binding() -> dict[str, Any]:
    """What vLLM's search for its kernels does without the patch, then with it."""
    done = subprocess.run([sys.executable, "-c", BINDING], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_without_the_patch_the_search_dies_at_llvmlite(binding: dict[str, Any]) -> None:
    """Once this fails, vLLM no longer needs the patch."""
    assert "has no attribute 'get'" in binding["before"]


def test_with_the_patch_every_kernel_is_bound(binding: dict[str, Any]) -> None:
    assert binding["after"] == "bound"
    assert binding["found"]


def test_the_patch_puts_every_module_back(binding: dict[str, Any]) -> None:
    assert binding["llvmlite"]
    assert binding["lost"] == []
