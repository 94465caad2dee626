"""requirements/: the lock holds what the extras ask for, and the script refuses machines that will not do."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mmspec.environment.faults import CPU_PINS

ROOT = Path(__file__).parents[2]


def lock() -> dict[str, Requirement]:
    lines = (ROOT / "requirements" / "cpu.lock").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(pin.name): pin for pin in pins}


def test_the_lock_pins_each_package_once_and_without_a_source() -> None:
    pins = lock()
    text = (ROOT / "requirements" / "cpu.lock").read_text()
    assert len(pins) == len([line for line in text.splitlines() if line and not line.startswith("#")])
    assert all(re.fullmatch(r"==[\w.+]+", str(pin.specifier)) and pin.url is None for pin in pins.values())


@pytest.mark.parametrize("extra", ["", "cpu", "demo", "train", "dev"])
def test_the_lock_satisfies_the_extras(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["optional-dependencies"][extra] if extra else project["dependencies"]
    pins = lock()
    for requirement in map(Requirement, wanted):
        pin = next(iter(pins[canonicalize_name(requirement.name)].specifier))
        assert requirement.specifier.contains(pin.version), f"{requirement} against {pin}"


def test_doctor_names_the_versions_of_the_lock() -> None:
    assert all(str(lock()[name]) == pin for name, pin in CPU_PINS.items())


def test_the_lock_leaves_out_what_breaks_beside_a_cpu_torch() -> None:
    assert not {"torchaudio", "torchcodec", "llm", "llama-cpp-python", "mmspec", "vllm"} & set(lock())


def install(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the script in a folder of its own, where it can make nothing before it has checked the machine."""
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    command = [str(folder / "requirements" / "install.sh"), ".venv/.ready"]
    environment = {"PATH": "/usr/bin:/bin", **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def script(file: Path, *lines: str) -> Path:
    file.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    file.chmod(0o755)
    return file


def refusal(folder: Path, **environment: str) -> str:
    process = install(folder, **environment)
    assert process.returncode != 0
    assert not (folder / ".venv").exists()
    (line,) = process.stderr.splitlines()
    return line.removeprefix("mmspec install: ")


def test_a_python_that_is_too_old(tmp_path: Path) -> None:
    old = script(tmp_path / "python3.9", "exit 1")
    assert refusal(tmp_path / "project", PYTHON=str(old)).startswith(
        f"PYTHON={old} does not run as Python 3.11"
    )


def test_a_python_without_venv(tmp_path: Path) -> None:
    bare = script(tmp_path / "python3.11", 'case "$2" in *ensurepip*) exit 1;; esac')
    assert "cannot make virtual environments; install its venv package" in refusal(
        tmp_path / "project", PYTHON=str(bare)
    )


def test_too_little_disk_space(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin" / "df", "echo header", "echo /dev/x 100 90 10 90% /")
    line = refusal(tmp_path / "project", PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert line.startswith("only 10 MB are free in ")
