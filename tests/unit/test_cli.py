"""The command line: help, and mistakes answered with one line and no engine."""

import socket
import sys
from pathlib import Path

import pytest
from PIL import Image

from mmspec.cli.main import main
from mmspec.cli.vllm_flags import flag_names, to_flags

COMMANDS = [
    [],
    ["chat"],
    ["serve"],
    ["doctor"],
    ["pocket"],
    ["pocket", "build"],
    ["pocket", "eval"],
    ["bench"],
    ["bench", "lossless"],
    ["bench", "fastv"],
    ["bench", "encoder-cache"],
    ["cache"],
    ["cache", "stats"],
    ["cache", "ls"],
    ["cache", "verify"],
    ["cache", "purge"],
    ["tune"],
    ["demo"],
]
GROUPS = ["head", "cache", "bench", "pocket"]


def run(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.fixture
def picture(tmp_path: Path) -> str:
    path = tmp_path / "picture.png"
    Image.new("RGB", (40, 30), "red").save(path)
    return str(path)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    folder = tmp_path / "my model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").touch()
    return str(folder)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command) or "mmspec")
def test_every_command_has_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--help"]) == 0
    assert "Usage: mmspec" in capsys.readouterr().out


@pytest.mark.parametrize(("command", "code"), [([], 0), *(([name], 2) for name in GROUPS)])
def test_without_a_command_there_is_help(
    command: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command) == code
    output, errors = capsys.readouterr()
    assert f"Usage: {' '.join(['mmspec', *command])} " in output and "Commands" in output
    assert errors == ""


@pytest.mark.parametrize(
    "command",
    [
        ["chat", "--prompt", "x"],
        ["bench", "lossless"],
        ["bench", "speed", "--head", "a/head"],
        ["bench", "encoder-cache"],
        ["tune"],
        ["head", "eval", "heads/none"],
    ],
    ids=" ".join,
)
def test_a_model_that_is_not_there_is_told_before_anything_else(
    command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--model", "/no/model"]) != 0
    output, errors = capfd.readouterr()
    assert (output, errors) == (
        "",
        "mmspec: model /no/model: no such folder; give pocket, a folder with config.json and weights, or a hub name\n",
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nope"], "No such command 'nope'"),
        (["chat"], "Missing option '--prompt'"),
        (["chat", "--prompt", " "], "--prompt is empty"),
        (["chat", "--prompt", "x", "--image", "/missing.png"], "picture /missing.png: no such file"),
        (["chat", "--prompt", "x", "--image", __file__], "not a picture"),
        (["chat", "--prompt", "x", "--draft", "magic"], "choose auto, none, ngram"),
        (["serve", "a/b", "--draft", "magic"], "choose auto, none, ngram, suffix, draft_model or eagle3"),
        (["demo", "--draft", "magic"], "choose auto, none, ngram"),
        (["chat", "--prompt", "x", "--draft", "none", "-k", "4"], "leave num_speculative_tokens (-k) out"),
        (["serve", "a/b", "--draft", "none", "-k", "4"], "leave num_speculative_tokens (-k) out"),
        (["bench", "lossless", "--draft", "none", "-k", "4"], "leave num_speculative_tokens (-k) out"),
        (["serve", "a/b", "--draft", "none", "--draft-model", "a/head"], "none takes no model"),
        (["chat", "--prompt", "x", "--model", "a/model", "--draft", "eagle3"], "--draft-model"),
        (["bench", "encoder-cache", "--side", "448", "--side", "448"], "the same size twice"),
        (["bench", "fastv", "--compiled", "--keep", "1.0"], "--compiled says what is timed"),
        (["bench", "fastv", "--scenes", "0", "--references", "0", "--repeats", "0"], "nothing to measure"),
        (["bench", "fastv", "--head", "/no/head"], "no such folder"),
        (["bench", "fastv", "--out", f"{__file__}/x.json"], "is a file, and no folder"),
        (["bench", "fastv", "--plot", f"{__file__}/x.png"], "is a file, and no folder"),
        (["bench", "encoder-cache", "--head", "/no/head"], "no such folder"),
        (["bench", "encoder-cache", "--out", str(Path(__file__).parent)], "is a folder; name a file"),
        (["bench", "encoder-cache", "--rounds", "2", "--rounds", "3"], "2 numbers for 1 sizes"),
        (["chat", "--prompt", "x", "--draft-model", "a/head"], "add --draft eagle3 or draft_model"),
        (["chat", "--prompt", "x", "--draft", "eagle3", "--draft-model", "/no/head"], "no such folder"),
        (["chat", "--prompt", "x", "-k", "0"], "num_speculative_tokens: 0"),
        (
            ["serve", "a/b", "-k", "129"],
            "num_speculative_tokens: 129 is not accepted: input should be less than",
        ),
        (
            ["chat", "--prompt", "x", "--encoder-cache", "onn"],
            "on, off, a folder such as ./features, or options",
        ),
        (
            ["serve", "a/b", "--encoder-cache", f"{__file__}/x"],
            f"{__file__} is not a folder; name another one",
        ),
        (
            ["serve", "a/b", "--encoder-cache-size", "1GB"],
            "no folder to limit; name one with --encoder-cache",
        ),
        (["serve", "a/b", "--encoder-cache", "./x", "--encoder-cache-size", "20"], "'20' has no unit"),
        (["chat", "--prompt", "x", "--max-tokens", "0"], "--max-tokens"),
        (["chat", "--prompt", "x", "--temperature", "1", "--check"], "leave --temperature at 0"),
        (["chat", "--prompt", "x", "--unknown"], "No such option: --unknown"),
        (["chat", "--prompt", "x", "--model", "/no/model"], "model /no/model: no such folder"),
        (["chat", "--prompt", "x", "--fastv-keep", "0"], "fastv.keep: 0.0 is not accepted"),
        (["chat", "--prompt", "x", "--fastv-keep", "lots"], "--fastv-keep"),
        (["chat", "--prompt", "x", "--fastv-layer", "0"], "fastv.layer: 0 is not accepted"),
        (["serve", "a/b", "--fastv-layer", "3"], "say how much with --fastv-keep"),
        (["chat", "--prompt", "x", "--fastv-scores", "best"], "unknown criterion 'best'"),
        (["chat", "--prompt", "x", "--show-kept", "kept.png"], "prune with --fastv-keep"),
        (["chat", "--prompt", "x", "--fastv-keep", "1", "--show-kept", "kept.png"], "give one with --image"),
        (["serve", "a/b", "--fastv", "2"], "fastv.keep: 2.0 is not accepted"),
        (["bench", "fastv", "--keep", "7"], "fastv.keep: 7.0 is not accepted"),
        (["bench", "fastv", "--scores", "best"], "unknown criterion 'best'"),
        (["bench", "fastv", "--scenes", "1"], "give 0 or at least 2"),
        (["demo", "--server", "localhost:8000"], "give an address such as http://localhost:8000"),
        (["demo", "--port", "70000"], "--port"),
        (["serve"], "Missing argument"),
        (["serve", "/no/model"], "model /no/model: no such folder"),
        (["serve", "/no/model", "--port", "70000"], "--port"),
        (["serve", "a/b", "--speculative-config", "{}"], "--speculative-config is what mmspec serve sets"),
        (["bench", "lossless", "--draft", "magic"], "choose none"),
        (
            ["bench", "lossless", "--model", "a/b", "--draft", "eagle3", "--draft-model", "a/head"],
            "with --head",
        ),
        (["bench", "speed", "--model", "a/b"], "name one with --head"),
        (["bench", "positions", "--head", "/no/head"], "no such folder"),
        (["bench", "lossless", "--examples", "/no/folder"], "examples.json: not found"),
        (
            ["serve", "a/b", "--encoder-cache", '{"memory_size": "1GB", "remote": "http://host:1"}'],
            "encoder_cache.remote: expected an address like redis://host:6379, or rediss:// for TLS",
        ),
        (["cache", "stats", "--directory", __file__], f"{__file__} is a file; name the folder of a cache"),
        (
            ["head", "convert", "/a", "/b", "--dtype", "float8"],
            "'--dtype': 'float8' is not one of 'float32', 'bfloat16', 'float16'",
        ),
        (["tune", "--draft", "none"], "nothing to tune"),
        (["tune", "--model", "a/b", "--draft", "eagle3"], "needs"),
        (["tune", "--examples", "/no/folder"], "examples.json: not found"),
    ],
)
def test_a_mistake_is_answered_with_one_line(
    arguments: list[str], named: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code = run(arguments)
    output, errors = capfd.readouterr()

    lines = [line for line in errors.splitlines() if line.startswith("mmspec: ")]
    assert code != 0
    assert len(lines) == 1
    assert named in lines[0]
    assert "Traceback" not in errors
    assert output == ""


@pytest.mark.parametrize(
    "command", [["serve", "a/b"], ["serve", "a/b", "--dry-run"], ["chat", "--prompt", "x"]]
)
def test_a_remote_tier_without_its_package_is_refused(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)

    code = run([*command, "--encoder-cache", '{"memory_size": "1GB", "remote": "redis://host"}'])
    output, errors = capfd.readouterr()

    assert code != 0 and output == ""
    (said,) = errors.splitlines()
    assert said.startswith("mmspec: encoder_cache.remote: the Python package redis is missing; pip install")


def test_a_port_in_use_is_refused(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        code = run(["serve", checkpoint, "--host", "127.0.0.1", "--port", str(port)])

    assert code != 0
    assert f"port {port}" in capsys.readouterr().err


def test_engine_arguments_as_flags() -> None:
    arguments = {"dtype": "float32", "enforce_eager": True, "enable_prefix_caching": False, "a_b": {"c": [1]}}

    flags = to_flags(arguments)

    assert flags == [
        "--dtype", "float32", "--enforce-eager", "--no-enable-prefix-caching", "--a-b", '{"c": [1]}'
    ]  # fmt: skip
    assert flag_names(flags) == set(arguments)


def test_flags_are_recognised_however_they_are_written() -> None:
    assert flag_names(["--max_model_len=5", "--speculative-config.method", "ngram"]) == {
        "max_model_len",
        "speculative_config",
    }
