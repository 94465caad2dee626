"""Which model classes of the installed vLLM support EAGLE-3, read from its source without importing it.

The runner asks for `SupportsEagle3` on the model's class (vLLM 0.32, `GPUModelRunner.load_model`), and importing the
class would take seconds and a device.
"""

import ast
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_MODELS = "vllm.model_executor.models"
_WANTED = "SupportsEagle3"


@dataclass(frozen=True)
class _Module:
    """Classes with the names of their bases, and where imported names come from: (module, name)."""

    classes: dict[str, list[str]] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)


def has_eagle3(architecture: str) -> bool | None:
    """Whether vLLM can draft for this architecture with EAGLE-3; None when vLLM does not list it."""
    place = _registry().get(architecture)
    if place is None:
        return None
    module, name = place
    return _inherits(module if module.startswith("vllm.") else f"{_MODELS}.{module}", name)


@cache
def _registry() -> dict[str, tuple[str, str]]:
    """Architecture to module and class, from the tables in vLLM's registry."""
    path = _path(f"{_MODELS}.registry")
    if path is None:
        return {}
    tables = [
        node.value
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
    ]
    found = {}
    for table in tables:
        for key, value in zip(table.keys, table.values, strict=True) if isinstance(table, ast.Dict) else ():
            if isinstance(key, ast.Constant) and isinstance(value, ast.Tuple):
                parts = [part.value for part in value.elts if isinstance(part, ast.Constant)]
                if len(parts) == 2:
                    found[str(key.value)] = (str(parts[0]), str(parts[1]))
    return found


@cache
def _inherits(module: str, name: str) -> bool | None:
    """Whether a class has `SupportsEagle3` among its bases; None where the class cannot be found."""
    source = _read(module)
    if source is None:
        return None
    if name in source.imports:
        return _inherits(*source.imports[name])
    if name not in source.classes:
        return None
    bases = source.classes[name]
    return _WANTED in bases or any(_inherits(module, base) for base in bases)


@cache
def _read(module: str) -> _Module | None:
    path = _path(module)
    if path is None:
        return None
    found = _Module()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            found.classes[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
        elif isinstance(node, ast.ImportFrom):
            origin = _absolute(package, node)
            found.imports.update({alias.asname or alias.name: (origin, alias.name) for alias in node.names})
    return found


def _absolute(package: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parent = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parent, *([node.module] if node.module else [])])


def _path(module: str) -> Path | None:
    """The source file of one of vLLM's modules."""
    if module.split(".")[0] != "vllm":
        return None
    spec = find_spec("vllm")
    for root in (spec.submodule_search_locations or []) if spec else []:
        path = Path(root).joinpath(*module.split(".")[1:])
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if candidate.is_file():
                return candidate
    return None
