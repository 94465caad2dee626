"""`mmspec cache`: what is there, what it costs, what is damaged, and its removal, beside running engines."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mmspec.cli.main import main
from mmspec.encoders.cache import Encoder, Entry, FolderTier, Keys
from tests.unit.encoders.cache.entries import entry, key


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["cache", *arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    """The JSON object that a command prints, alone."""
    assert run(*arguments, "--json") == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture
def folder(filled: FolderTier) -> str:
    filled.close()
    return str(filled.folder)


@pytest.mark.parametrize("command", [[], ["stats"], ["ls"], ["verify"], ["purge"]], ids=str)
def test_every_command_has_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*command, "--help") == 0
    assert "Usage: mmspec cache" in capsys.readouterr().out


def test_stats(folder: str, filled: FolderTier, capsys: pytest.CaptureFixture[str]) -> None:
    filled.put(
        Keys(Encoder("v", "float32", 2), "t").of_content("x"), Entry("F32", (3, 2), memoryview(bytes(24)))
    )
    found = answer(capsys, "stats", "--directory", folder)

    assert found["entries"] == 11 and found["bytes"] == filled.totals().bytes
    assert [(model["model"], model["entries"]) for model in found["models"]] == [("a model", 10), ("", 1)]
    assert run("stats", "--directory", folder) == 0
    assert "a model" in capsys.readouterr().out


def test_the_plan_is_reckoned_from_the_entries(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "stats", "--directory", folder, "--plan", "1000")
    rows = [entry(number).shape[0] for number in range(10)]
    files = [4096 * -(-path.stat().st_size // 4096) for path in (Path(folder) / "entries").iterdir()]

    assert found["images"] == 1000
    assert found["models"][0]["plan"] == {
        "device_embeddings": 100 * sum(rows),
        "device_bytes": 100 * sum(rows) * 16,
        "host_bytes": 100 * sum(files),
        "disk_bytes": 100 * sum(files),
        "remote_bytes": 100 * sum(files),
    }
    assert run("stats", "--directory", folder, "--plan", "1000") == 0
    assert "1000 pictures: disk" in capsys.readouterr().out


def test_ls_shows_the_latest_used_first(
    folder: str, filled: FolderTier, capsys: pytest.CaptureFixture[str]
) -> None:
    filled.get(key(3))
    found = answer(capsys, "ls", "--directory", folder, "--limit", "2")

    assert found["total"] == 10 and len(found["entries"]) == 2
    first = found["entries"][0]
    assert (
        first["name"] == key(3).name and first["shape"] == list(entry(3).shape) and first["dtype"] == "BF16"
    )
    assert time.time() - 600 < first["made"] <= first["used"] <= time.time()
    assert len(answer(capsys, "ls", "--directory", folder, "--limit", "0")["entries"]) == 10
    assert run("ls", "--directory", folder) == 0
    assert key(3).name[:16] in capsys.readouterr().out


def test_verify_says_what_was_damaged(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "verify", "--directory", folder)["dropped"] == {}
    path = Path(folder) / "entries" / f"{key(1).name}.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"?")

    found = answer(capsys, "verify", "--directory", folder, code=1)
    assert found["dropped"] == {key(1).name: "a wrong checksum"} and found["entries"] == 9
    assert run("verify", "--directory", folder) == 0


def test_purge_by_namespace_or_all(
    folder: str, filled: FolderTier, capsys: pytest.CaptureFixture[str]
) -> None:
    filled.put(Keys(Encoder("w", "bfloat16", 8), "leaving").of_content("x"), entry(1))

    assert answer(capsys, "purge", "--directory", folder, "--namespace", "nobody")["purged"] == 0
    assert answer(capsys, "purge", "--directory", folder, "--unused-for", "1h")["purged"] == 0
    assert answer(capsys, "purge", "--directory", folder, "--namespace", "leaving") == {
        "directory": folder,
        "purged": 1,
        "left": 10,
    }
    assert answer(capsys, "purge", "--directory", folder, "--encoder", key(1).encoder)["left"] == 0
    filled.put(key(1), entry(1))
    os.utime(Path(folder) / "entries" / f"{key(1).name}.safetensors")
    assert answer(capsys, "purge", "--directory", folder, "--all")["purged"] == 1


@pytest.mark.parametrize(
    "match", [["--encoder", "f00"], ["--namespace", "nobody"], ["--unused-for", "1h"]], ids=str
)
def test_a_purge_that_matches_nothing_says_so(
    folder: str, match: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("purge", "--directory", folder, *match, "--json") == 0

    captured = capsys.readouterr()
    assert json.loads(captured.out)["purged"] == 0
    assert "no entry matches; mmspec cache ls and stats show what there is" in captured.err
    run("purge", "--directory", folder, "--all")
    run("purge", "--directory", folder, "--all")
    assert not capsys.readouterr().err


def test_a_folder_in_the_place_of_the_index_is_named_with_its_mend(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm"):
        (Path(folder) / name).unlink(missing_ok=True)
    index = Path(folder) / "index.sqlite"
    index.mkdir()

    assert run("ls", "--directory", folder) == 2
    captured = capsys.readouterr()
    assert f"{index} is a folder" in captured.err and "remove it" in captured.err
    index.rmdir()
    assert answer(capsys, "stats", "--directory", folder)["entries"] == 10


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stats", "--directory", "/no/folder"], "no feature cache in /no/folder"),
        (["stats", "--plan", "0"], "--plan"),
        (["ls", "--limit", "-1"], "--limit"),
        (["purge"], "say what to drop"),
        (["purge", "--all", "--namespace", "x"], "say what to drop"),
        (["purge", "--unused-for", "7"], "--unused-for"),
        (["mend"], "No such command"),
    ],
)
def test_mistakes_are_answered_with_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.count("\n") == 1 and not captured.out


def test_looking_makes_no_folder(tmp_path: Path) -> None:
    assert run("stats", "--directory", str(tmp_path / "none")) == 2
    assert not list(tmp_path.iterdir())


def test_a_plan_needs_entries(tier: FolderTier, capsys: pytest.CaptureFixture[str]) -> None:
    tier.put(key(1), entry(1))
    tier.purge()

    assert run("stats", "--directory", str(tier.folder), "--plan", "5") == 2
    assert "is empty" in capsys.readouterr().err


ENGINE = """
import signal, sys
from pathlib import Path
from mmspec.encoders.cache import FolderTier
from tests.unit.encoders.cache.entries import entry, is_right, key
signal.alarm(300)  # should nobody stop it
tier, wrong, step = FolderTier(Path(sys.argv[1]), 300_000), 0, 0
print("ready", flush=True)
while not Path(sys.argv[1], "stop").exists():
    step += 1
    tier.put(key(step % 37), entry(step % 37))
    found = tier.get(key(step * 7 % 37))
    wrong += found is not None and not is_right(step * 7 % 37, found)
print(wrong)
"""


def test_it_is_safe_beside_a_running_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "cache"
    engine = subprocess.Popen([sys.executable, "-c", ENGINE, str(folder)], stdout=subprocess.PIPE, text=True)
    assert engine.stdout is not None and engine.stdout.readline() == "ready\n"
    while not (folder / "index.sqlite").exists():
        time.sleep(0.01)
    for _ in range(10):
        assert answer(capsys, "stats", "--directory", str(folder))["bytes"] <= 300_000
        assert answer(capsys, "verify", "--directory", str(folder))["dropped"] == {}
        answer(capsys, "ls", "--directory", str(folder))
        answer(capsys, "purge", "--directory", str(folder), "--all")
    (folder / "stop").touch()

    assert engine.communicate()[0] == "0\n" and engine.returncode == 0
    assert FolderTier(folder, 300_000).verify().clean
