"""`mmspec head check`, `convert` and `export` from the command line."""

import json
from pathlib import Path

import pytest

from mmspec.cli.main import main
from tests.conftest import Checkpoints
from tests.unit.heads.conftest import Pair


def run(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str], str]:
    """Exit code, lines of standard output, standard error."""
    with pytest.raises(SystemExit) as caught:
        main(["head", *map(str, arguments)])
    out, err = capfd.readouterr()
    assert isinstance(caught.value.code, int)
    return caught.value.code, out.splitlines(), err


@pytest.mark.parametrize("command", [[], ["check"], ["convert"], ["export"]])
def test_every_command_has_help(command: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, *command, "--help")

    assert code == 0
    assert "Usage: mmspec head" in "\n".join(out)


def test_a_head_that_fits(pair: Pair, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, "check", pair.head, pair.target, "--json")

    assert code == 0
    assert json.loads(out[-1]) == {
        "head": str(pair.head),
        "target": str(pair.target),
        "fits": True,
        "mismatches": [],
    }


def test_a_head_that_does_not_fit(pair: Pair, capfd: pytest.CaptureFixture[str]) -> None:
    pair.set_text(vocab_size=600)
    pair.change(lambda tensors: tensors.pop("norm.weight"))

    code, lines, _ = run(capfd, "check", pair.head, pair.target)
    assert code == 1
    assert [line.split(":")[0] for line in lines[:-1]] == ["weights", "vocabulary"]
    assert "does not fit" in lines[-1]

    code, out, err = run(capfd, "check", pair.head, pair.target, "--json")
    assert code == 1
    assert [found["aspect"] for found in json.loads(out[-1])["mismatches"]] == ["weights", "vocabulary"]
    assert all(line in err for line in lines)


def test_a_target_that_is_not_here(pair: Pair, capfd: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = run(capfd, "check", pair.head, "nobody/has-this")

    assert code == 1
    assert "could not be read" in lines[0]
    assert "was not checked against" in lines[-1]


def test_a_head_is_converted_and_exported(
    tiny: Checkpoints, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(
        capfd, "convert", tiny["eagle3"], tmp_path / "ours", "--target", tiny["llava"], "--json"
    )
    assert code == 0
    assert json.loads(out[-1])["eagle_aux_hidden_state_layer_ids"] == [2, 4, 5]

    code, out, _ = run(capfd, "export", tmp_path / "ours", tmp_path / "stock", "--json")
    assert code == 0
    assert json.loads(out[-1])["draft_vocab_size"] == 24
    assert run(capfd, "check", tmp_path / "stock", tiny["llava"])[0] == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["check", "/no/head", "/no/target"], "model /no/target: no such folder"),
        (["check", "HEAD"], "Missing argument"),
        (["check", "/no/head", "TARGET"], "head /no/head: no such folder"),
        (["check", "HEAD", "TARGET", "--draft-tensor-parallel-size", "0"], "--draft-tensor-parallel-size"),
        (["convert", "TARGET", "OUT"], "is no EAGLE-3 head"),
        (["convert", "HEAD", "HEAD"], "not empty"),
        (["convert", "HEAD", "OUT", "--dtype", "int8"], "--dtype"),
        (["export", "HEAD", "TARGET", "--force", "--target", "/no/target"], "/no/target: no such folder"),
    ],
)
def test_a_mistake_is_answered_with_one_line(
    arguments: list[str], named: str, pair: Pair, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folders = {"HEAD": pair.head, "TARGET": pair.target, "OUT": tmp_path / "out"}
    code, out, err = run(capfd, *[folders.get(argument, argument) for argument in arguments])

    assert code == 2
    assert out == []
    assert [line.startswith("mmspec: ") for line in err.splitlines()] == [True], err
    assert named in err
    assert not (tmp_path / "out").exists()
