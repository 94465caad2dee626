"""The wheel holds every package under the name it is imported by, and every data file beside the code."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = {"mmspec": "mmspec", "encoders": "mmspec/encoders", "heads": "mmspec/heads", "demo": "mmspec/demo"}
DATA = {".safetensors", ".json", ".png", ".txt", ".md"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in a wheel built from a copy of the sources, to which a package was added."""
    folder = tmp_path_factory.mktemp("sources")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for part in PARTS:
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    added = folder / "encoders" / "added" / "inner"
    added.mkdir(parents=True)
    for file in (added.parent / "__init__.py", added / "__init__.py", added / "card.json"):
        file.touch()
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(folder / "dist")]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(folder)], check=True, timeout=300)
    (built,) = (folder / "dist").glob("mmspec-*.whl")
    return set(zipfile.ZipFile(built).namelist())


def test_every_module_is_there_under_its_import_name(wheel: set[str]) -> None:
    modules = {
        f"{target}/{file.relative_to(ROOT / part).as_posix()}"
        for part, target in PARTS.items()
        for file in (ROOT / part).rglob("*.py")
    }
    assert "mmspec/encoders/pocket/__init__.py" in modules
    assert modules <= wheel


def test_data_lies_beside_the_code(wheel: set[str]) -> None:
    folders = [(ROOT / "encoders" / "pocket", "mmspec/encoders/pocket"), (ROOT / "demo", "mmspec/demo")]
    data = {
        f"{target}/{file.relative_to(folder).as_posix()}"
        for folder, target in folders
        for file in folder.rglob("*")
        if file.suffix in DATA
    }
    assert data and data <= wheel
    assert "mmspec/py.typed" in wheel


def test_a_package_added_later_is_not_forgotten(wheel: set[str]) -> None:
    assert {"mmspec/encoders/added/inner/__init__.py", "mmspec/encoders/added/inner/card.json"} <= wheel


def test_nothing_else_is_in_it(wheel: set[str]) -> None:
    assert {name.split("/")[0].removesuffix("-0.1.0.dist-info") for name in wheel} == {"mmspec"}
    assert any(name.endswith("licenses/LICENSE") for name in wheel)
