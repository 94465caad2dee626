"""`mmspec head capture`: mistakes are one line, before any engine starts."""

from pathlib import Path

import pytest

from mmspec.cli.main import main
from tests.unit.heads.capture.conftest import Write
from tests.unit.heads.capture.fake import user


def run(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["head", "capture", *arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_help_names_the_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert "Usage: mmspec head capture" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "options", "named"),
    [
        (None, [], "prompts.jsonl: cannot be read"),
        ([], [], "the file is empty"),
        (["nonsense"], [], "nothing usable in 1 lines; line 1: not JSON"),
        ([{"messages": [user("x")]}], ["--model", "/no/model"], "model /no/model: no such folder"),
        ([{"messages": [user("x")]}], ["--shard-size", "big"], "--shard-size: 'big' is not a size"),
        ([{"messages": [user("x")]}], ["--max-bytes", "1 cup"], "--max-bytes: '1 cup' is not a size"),
        ([{"messages": [user("x")]}], ["--aux-layers", "2;4"], "--aux-layers: '2;4' is no list"),
        ([{"messages": [user("x")]}], ["--dtype", "int8"], "dtype: 'int8' is not one of"),
        ([{"messages": [user("x")]}], ["--temperature", "-1"], "--temperature"),
    ],
)
def test_a_mistake_is_answered_with_one_line(
    lines: list[object] | None,
    options: list[str],
    named: str,
    write: Write,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    prompts = tmp_path / "prompts.jsonl" if lines is None else write(*lines)
    code = run([str(prompts), str(tmp_path / "out"), *options])
    output, errors = capfd.readouterr()

    (line,) = [line for line in errors.splitlines() if line.startswith("mmspec: ")]
    assert code != 0
    assert named in line
    assert "Traceback" not in errors
    assert output == ""
    assert not (tmp_path / "out").exists()
