"""Lists the packages for setuptools: three of them lie beside `mmspec/` but are its sub-packages."""

from setuptools import find_packages, setup

# As in [tool.setuptools.package-dir] of pyproject.toml; setuptools cannot find packages under a mapped name.
PARTS = {"mmspec": "mmspec", "encoders": "mmspec.encoders", "heads": "mmspec.heads", "demo": "mmspec.demo"}


def packages() -> list[str]:
    found = find_packages(include=[pattern for folder in PARTS for pattern in (folder, f"{folder}.*")])
    return [PARTS[name.partition(".")[0]] + name[len(name.partition(".")[0]) :] for name in found]


setup(packages=packages())
