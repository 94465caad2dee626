"""The patch class, on a module made for it, and the ledger's entries."""

import logging
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mmspec.patches import LEDGER, Patch, PatchError, as_markdown

MODULE = "module_to_patch"


@pytest.fixture
def module() -> Iterator[ModuleType]:
    """A module with a function and a class with a method."""
    made = ModuleType(MODULE)
    exec("def double(number):\n    return 2 * number\n", vars(made))
    exec("class Counter:\n    def add(self, number):\n        return number + 1\n", vars(made))
    sys.modules[MODULE] = made
    yield made
    del sys.modules[MODULE]


def make_patch(target: str = "double", parameters: tuple[str, ...] = ("number",), **changes: Any) -> Patch:
    def negate(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: -original(*args)

    fields: dict[str, Any] = {
        "why": "w",
        "upstream": "u",
        "versions": "v1",
        "remove_when": "r",
        "wrap": negate,
    }
    return Patch(target=f"{MODULE}:{target}", parameters=parameters, **(fields | changes))


def test_a_function_is_replaced(module: ModuleType) -> None:
    patch = make_patch()
    assert not patch.applied

    patch.apply()

    assert patch.applied
    assert module.double(4) == -8


def test_a_method_is_replaced(module: ModuleType) -> None:
    make_patch("Counter.add", ("self", "number")).apply()

    assert module.Counter().add(1) == -2


def test_a_patch_is_applied_only_once(module: ModuleType) -> None:
    make_patch().apply()

    with pytest.raises(PatchError, match="patched already"):
        make_patch().apply()

    assert module.double(4) == -8


@pytest.mark.parametrize("target", ["triple", "Missing.add", "Counter.take"])
def test_a_missing_target_is_refused(module: ModuleType, target: str) -> None:
    with pytest.raises(PatchError, match=r"not found.*v1"):
        make_patch(target).apply()


def test_a_missing_module_is_refused() -> None:
    with pytest.raises(PatchError, match="not found"):
        make_patch().apply()


def test_a_changed_target_is_refused(module: ModuleType) -> None:
    with pytest.raises(PatchError, match=r"takes \(number\), not \(number, base\)"):
        make_patch(parameters=("number", "base")).apply()

    assert module.double(4) == 8


def test_an_inherited_method_is_not_patched_in_the_wrong_class(module: ModuleType) -> None:
    module.Special = type("Special", (module.Counter,), {})  # type: ignore[attr-defined]

    with pytest.raises(PatchError, match="not found"):
        make_patch("Special.add", ("self", "number")).apply()


@pytest.fixture
def not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module that can be imported, and is not yet."""
    (tmp_path / f"{MODULE}.py").write_text("def double(number):\n    return 2 * number\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield MODULE
    sys.modules.pop(MODULE, None)


def test_a_lazy_patch_waits_for_its_module(not_imported: str) -> None:
    patch = make_patch(lazy=True)
    patch.apply()
    assert patch.applied
    assert not_imported not in sys.modules
    with pytest.raises(PatchError, match="patched already"):
        make_patch(lazy=True).apply()

    assert import_module(not_imported).double(4) == -8

    assert patch.applied
    with pytest.raises(PatchError, match="patched already"):
        make_patch(lazy=True).apply()


def test_a_lazy_patch_is_applied_at_once_to_a_module_that_is_there(module: ModuleType) -> None:
    make_patch(lazy=True).apply()

    assert module.double(4) == -8


def test_a_lazy_patch_that_does_not_fit_lets_the_import_pass(
    not_imported: str, caplog: pytest.LogCaptureFixture
) -> None:
    patch = make_patch("triple", lazy=True)
    patch.apply()

    with caplog.at_level(logging.WARNING, logger="vllm.plugins.mmspec"):
        assert import_module(not_imported).double(4) == 8

    assert not patch.applied
    assert "triple: not found" in caplog.text


def test_the_ledger_names_each_patch_with_its_reason_and_end() -> None:
    table = as_markdown()

    for patch in LEDGER:
        assert all([patch.why, patch.upstream, patch.versions, patch.remove_when])
        assert f"`{patch.target}`" in table
    assert len({patch.target for patch in LEDGER}) == len(LEDGER)
