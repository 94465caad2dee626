"""A real virtual environment with tiny stand-ins for torch, its companions and vLLM, whole or broken."""

import venv
from pathlib import Path

from mmspec.environment import Interpreter

_TORCH = """
from types import SimpleNamespace as _Namespace
from torch import version
ops = _Namespace(torchvision=_Namespace())
cuda = _Namespace(is_available=lambda: version.cuda is not None, device_count=lambda: 1)
class _Library:
    def __init__(self, namespace, kind):
        self._namespace = getattr(ops, namespace)
    def define(self, schema):
        name = schema.partition("(")[0]
        if hasattr(self._namespace, name):
            raise RuntimeError(f"Tried to register an operator {name} twice")
        setattr(self._namespace, name, schema)
library = _Namespace(Library=_Library)
"""
# As torchvision does: its compiled operators first, then fakes of operators which must have been declared.
_TORCHVISION = "from torchvision import extension, _meta_registrations"
_META = """
import torch
for name in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, name):
        raise RuntimeError(f"operator torchvision::{name} does not exist")
"""
_OPERATORS_LOADED = """
import torch
torch.ops.torchvision.nms = torch.ops.torchvision.qnms = "compiled"
def _has_ops(): return True
"""
_OPERATORS_MISSING = "def _has_ops(): return False"
_BROKEN_COMPANION = "raise OSError('Could not load this library: libcudart.so.13')"


class FakeEnvironment:
    """What a test may put into an environment, and what it may ask of it."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.interpreter = Interpreter(folder / "bin" / "python")
        self.site_packages = self.interpreter.site_packages

    def add(self, distribution: str, version: str, files: dict[str, str]) -> None:
        """Installs a distribution as pip would leave it, so that pip can take it away."""
        info = f"{distribution.replace('-', '_')}-{version}.dist-info"
        files = files | {
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        }
        files[f"{info}/INSTALLER"] = "pip\n"
        files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
        for name, content in files.items():
            file = self.site_packages / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(content)

    def add_torch(self, cuda: str | None = None) -> None:
        version = "2.13.0" if cuda else "2.13.0+cpu"
        files = {"torch/__init__.py": _TORCH, "torch/version.py": f"cuda = {cuda!r}\nhip = None\n"}
        self.add("torch", version, files)

    def add_torchvision(self, *, operators_load: bool) -> None:
        operators = _OPERATORS_LOADED if operators_load else _OPERATORS_MISSING
        modules = {"__init__": _TORCHVISION, "extension": operators, "_meta_registrations": _META}
        self.add("torchvision", "0.28.0", {f"torchvision/{name}.py": code for name, code in modules.items()})

    def add_companion(self, name: str, *, broken: bool) -> None:
        self.add(name, "2.11.1", {f"{name}/__init__.py": _BROKEN_COMPANION if broken else ""})

    def add_vllm(self, distribution: str) -> None:
        self.add(distribution, "0.32.0", {"vllm/__init__.py": "", "vllm/config.py": ""})

    def failure(self, code: str) -> str | None:
        """The last line of what went wrong when the code ran there, None when nothing did."""
        return self.interpreter.run(code).error

    def contents(self) -> dict[str, bytes]:
        """Everything in site-packages but what Python compiled."""
        files = (file for file in self.site_packages.rglob("*") if file.is_file() and file.suffix != ".pyc")
        return {str(file.relative_to(self.site_packages)): file.read_bytes() for file in files}
