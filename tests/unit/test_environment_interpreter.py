"""Code that runs in another process: whatever happens there, the caller gets a line."""

import os
from pathlib import Path

import pytest

from mmspec.environment import Interpreter
from mmspec.environment.machine import cpu_count, free_gib, memory_gib


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("report({'a': 1})", None),
        ("report({'a': 1}); raise ValueError('no')", "ValueError: no"),
        ("report({'a': 1}); import os; os._exit(3)", "ended with exit code 3"),
        ("report({'a': 1}); import time; time.sleep(60)", "no answer within 1 s"),
    ],
)
def test_a_report_ends_with_the_last_line_of_the_failure(code: str, error: str | None) -> None:
    report = Interpreter().run(code, timeout=60 if error is None else 1 if "sleep" in code else 60)
    assert report.error == error
    assert report.values == ({} if "sleep" in code else {"a": 1})


def test_an_interpreter_that_does_not_exist(tmp_path: Path) -> None:
    report = Interpreter(tmp_path / "python").run("pass")
    assert report.error is not None and "does not run" in report.error


def test_the_current_folder_is_not_probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch_of_somebody_else.py").touch()
    monkeypatch.chdir(tmp_path)
    assert "No module named" in (Interpreter().run("import torch_of_somebody_else").error or "")


def test_the_machine(tmp_path: Path) -> None:
    assert 1 <= cpu_count() <= (os.cpu_count() or 1)
    assert (memory_gib() or 1) > 0
    # A cache folder that is not made yet lies on the file system of what will hold it.
    assert free_gib(tmp_path / "not" / "made") == pytest.approx(free_gib(tmp_path), rel=0.1)
