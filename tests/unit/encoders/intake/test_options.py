"""How the intake is asked for: options, flags of `mmspec serve`, and what may stand in its way."""

import json
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mmspec import IntakeConfig, MmspecConfig, MmspecError
from mmspec.cli.main import main
from mmspec.engine_args import fill_engine_args

HEADER = "mmspec.encoders.intake.headers.IntakeHeader"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"background": "whitish"}, "intake.background: 'whitish' is no opaque colour"),
        ({"background": "#ff000080"}, "give a name such as white, or #rrggbb"),
        ({"max_bytes": 0}, "intake.max_bytes: 0 is not accepted"),
        ({"max_pixels": 10**10}, "intake.max_pixels: 10000000000 is not accepted"),
        ({"max_aspect_ratio": 300}, "intake.max_aspect_ratio: 300 is not accepted"),
        ({"max_byte": 1}, "did you mean 'max_bytes'?"),
    ],
)
def test_a_wrong_option_is_answered_with_one_line(options: dict[str, Any], named: str) -> None:
    with pytest.raises(MmspecError) as caught:
        MmspecConfig.parse({"intake": options})

    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_options_survive_the_way_to_the_engine() -> None:
    config = MmspecConfig(intake=IntakeConfig(background="#102030", max_bytes=5))

    assert config.to_options() == {"intake": {"background": "#102030", "max_bytes": 5}}
    assert MmspecConfig.parse(config.to_options()) == config
    assert MmspecConfig(intake=IntakeConfig()).to_options() == {"intake": {}}


def test_the_engine_finds_values_of_the_right_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    monkeypatch.setattr("mmspec.encoders.intake.serving.install", lambda: None)
    args = engine_args({"max_bytes": "5"})

    fill_engine_args(args)

    assert args.additional_config["mmspec"]["intake"] == {"max_bytes": 5}


def test_vllms_own_picture_options_are_refused_beside_the_intake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)

    with pytest.raises(MmspecError, match="media_io_kwargs for images would not be heard"):
        fill_engine_args(engine_args({}, media_io_kwargs={"image": {"image_mode": None}}))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [([], {}), (["--intake", "on"], {}), (["--intake", '{"background": "black"}'], {"background": "black"})],
)
def test_serve_takes_pictures_in_unless_told_otherwise(
    tmp_path: Path,
    unchecked: None,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    expected: dict[str, Any],
) -> None:
    line = dry_run(tmp_path, capsys, *flags)

    options = json.loads(line[line.index("--additional-config") + 1])
    assert options["mmspec"]["intake"] == expected
    assert line[line.index(HEADER) - 1] == "--middleware"


def test_serve_leaves_pictures_to_vllm_when_told_to(
    tmp_path: Path, unchecked: None, capsys: pytest.CaptureFixture[str]
) -> None:
    line = dry_run(tmp_path, capsys, "--intake", "off")

    assert "intake" not in json.loads(line[line.index("--additional-config") + 1])["mmspec"]
    assert HEADER not in line


@pytest.mark.parametrize("text", ["yes", "[1]", "{", '{"maximum": 1}'])
def test_serve_refuses_other_words(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["serve", str(checkpoint(tmp_path)), "--dry-run", "--intake", text])

    assert caught.value.code == 2
    assert "intake" in capsys.readouterr().err.splitlines()[-1]


def dry_run(folder: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> list[str]:
    with pytest.raises(SystemExit) as caught:
        main(["serve", str(checkpoint(folder)), "--dry-run", *flags])
    assert caught.value.code == 0
    return shlex.split(capsys.readouterr().out)


def checkpoint(folder: Path) -> Path:
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").touch()
    return folder


def engine_args(intake: dict[str, Any], **changes: Any) -> SimpleNamespace:
    """The fields of vLLM's `EngineArgs` that are looked at, with vLLM's defaults."""
    fields: dict[str, Any] = {"speculative_config": None, "per_request_spec_decode_metrics": "none"}
    fields |= {"media_io_kwargs": {}, **changes}
    return SimpleNamespace(additional_config={"mmspec": {"intake": intake}}, **fields)
