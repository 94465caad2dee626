"""`mmspec serve`: the plain line that it stands for. tests/serve has what vLLM makes of it."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from mmspec.encoders.intake.settings import NOWHERE
from tests.unit.test_cli import checkpoint, run

__all__ = ["checkpoint"]


@pytest.fixture
def dry_run(checkpoint: str, unchecked: None, capsys: pytest.CaptureFixture[str]) -> Any:
    """`dry_run(*flags)` is the list of arguments of `vllm`."""

    def arguments(*flags: str) -> list[str]:
        assert run(["serve", checkpoint, *flags, "--dry-run", "--json"]) == 0
        printed: list[str] = json.loads(capsys.readouterr().out.splitlines()[-1])["arguments"]
        return printed

    return arguments


def options_in(arguments: list[str]) -> Any:
    """What is in `--additional-config` for mmspec."""
    return json.loads(arguments[arguments.index("--additional-config") + 1])["mmspec"]


def test_the_dry_run_prints_a_line_for_the_shell(
    checkpoint: str, unchecked: None, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(["serve", checkpoint, "--dry-run", "--port", "8123", "-k", "3", "--api-key", "a b"])

    program, command, model, *flags = shlex.split(capsys.readouterr().out)
    options = dict(zip(flags[::2], flags[1::2], strict=False)) | dict(
        zip(flags[1::2], flags[2::2], strict=False)
    )
    assert code == 0
    assert (program, command, model) == ("vllm", "serve", checkpoint)
    assert json.loads(options["--speculative-config"])["num_speculative_tokens"] == 3
    assert json.loads(options["--additional-config"])["mmspec"]["draft"]["method"] == "ngram"
    assert options["--port"] == "8123"
    assert options["--api-key"] == "a b"
    assert options["--scheduler-cls"] == "mmspec.scheduler.build_asked_scheduler"
    assert options["--middleware"] == "mmspec.encoders.intake.headers.IntakeHeader"
    assert "mmspec.serving.middleware.Statistics" in flags


def test_the_dry_run_as_json(checkpoint: str, unchecked: None, capsys: pytest.CaptureFixture[str]) -> None:
    run(["serve", checkpoint, "--dry-run", "--json"])

    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert shlex.split(printed["command"]) == ["vllm", *printed["arguments"]]


def test_flags_of_the_user_win(checkpoint: str, unchecked: None, capsys: pytest.CaptureFixture[str]) -> None:
    run(["serve", checkpoint, "--dry-run", "--no-enforce-eager", "--kv-cache-memory-bytes=5"])

    line = capsys.readouterr().out
    assert "--enforce-eager" not in line.replace("--no-enforce-eager", "")
    assert line.count("--kv-cache-memory-bytes") == 1


def test_the_short_options_of_cache_and_pruning(dry_run: Any, tmp_path: Path) -> None:
    folder = tmp_path / "features"

    found = options_in(
        dry_run("--encoder-cache", str(folder), "--encoder-cache-size", "5GB", "--fastv", "0.5", "-k", "2")
    )

    assert found["encoder_cache"] == {"directory": str(folder), "disk_size": "5GB"}
    assert found["fastv"] == {"keep": 0.5}
    assert found["draft"]["num_speculative_tokens"] == 2
    assert not folder.exists()  # a dry run makes nothing


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--encoder-cache", "off"], None),
        (["--encoder-cache", "on"], {}),
        (["--encoder-cache", "on", "--encoder-cache-size", "1GB"], {"disk_size": "1GB"}),
        (["--encoder-cache", '{"memory_size": "1GB"}'], {"memory_size": "1GB"}),
    ],
    ids=["off", "on", "on with a size", "json"],
)
def test_the_cache_is_switched_as_before(
    dry_run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: list[str], expected: object
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert options_in(dry_run(*flags)).get("encoder_cache") == expected


def test_a_folder_is_named_from_everywhere(
    dry_run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()

    for named in ("there", "./there", "../" + tmp_path.name + "/there"):
        assert options_in(dry_run("--encoder-cache", named))["encoder_cache"]["directory"] == str(
            tmp_path / "there"
        )


def test_addresses_are_fetched_only_from_hosts_that_are_named(dry_run: Any) -> None:
    hosts = "--allowed-media-domains"

    plain, named = dry_run(), dry_run(hosts, "a.org", "b.org")

    assert plain[plain.index(hosts) + 1] == NOWHERE
    assert named[named.index(hosts) + 1 :][:2] == ["a.org", "b.org"] and named.count(hosts) == 1
    assert hosts not in dry_run(hosts, "any", "--seed", "1")
    assert f"{hosts}=any" not in dry_run(f"{hosts}=any")


def test_a_server_with_the_cache_has_time_to_store_when_it_is_ended(dry_run: Any, tmp_path: Path) -> None:
    cache = ("--encoder-cache", str(tmp_path))

    assert "--shutdown-timeout" not in dry_run()
    kept = dry_run(*cache)
    assert int(kept[kept.index("--shutdown-timeout") + 1]) > 0
    assert dry_run(*cache, "--shutdown-timeout", "0").count("--shutdown-timeout") == 1
