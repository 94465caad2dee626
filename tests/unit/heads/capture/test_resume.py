"""A capture may end at any moment: the next one goes on, and the data is the same as without the interruption."""

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from mmspec.errors import MmspecError
from mmspec.heads.capture import CapturedDataset, Summary
from mmspec.heads.capture import shards as shards_module
from tests.unit.heads.capture.fake import TARGET, FakeEngine, user
from tests.unit.heads.capture.test_capture import assert_same

Run = Callable[..., Summary]
Write = Callable[..., Path]
SMALL = {"shard_bytes": 12_000, "batch_size": 2}
RENAMES = 20  # more than a whole capture of these prompts makes


class Killed(BaseException):
    """The process ends here, without a chance to tidy up."""


@pytest.fixture
def whole(prompts: Path, tmp_path: Path, run: Run) -> Path:
    run(prompts, tmp_path / "whole", **SMALL)
    return tmp_path / "whole"


def assert_goes_on(prompts: Path, out: Path, whole: Path, run: Run) -> Summary:
    summary = run(prompts, out, **SMALL)
    assert_same(out, whole)
    assert CapturedDataset(out).manifest.complete
    assert not (out / ".partial").exists()
    return summary


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_around_any_rename(
    moment: str, prompts: Path, whole: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is published by a rename; around each of them a capture is killed and run again."""
    renames, rename = 0, os.replace
    while True:
        left = renames
        out = tmp_path / f"killed {moment} {renames}"

        def replace_or_die(source: Any, place: Any) -> None:
            nonlocal left
            if left == 0 and moment == "before":
                raise Killed
            rename(source, place)
            if left == 0:
                raise Killed
            left -= 1

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replace_or_die)
            try:
                run(prompts, out, **SMALL)
            except Killed:
                pass
            else:
                break
        assert_goes_on(prompts, out, whole, run)
        renames += 1
    assert 6 < renames < RENAMES


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
@pytest.mark.parametrize("number", range(4))
def test_killed_while_a_shard_is_written(
    share: float,
    number: int,
    prompts: Path,
    whole: Path,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = number

    def cut_short(tensors: Any, path: Path, metadata: Any) -> None:
        nonlocal left
        save_file(tensors, path, metadata=metadata)
        if left == 0:
            os.truncate(path, int(path.stat().st_size * share))
            raise Killed
        left -= 1

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(shards_module, "save_file", cut_short)
        run(prompts, tmp_path / "out", **SMALL)
    assert_goes_on(prompts, tmp_path / "out", whole, run)


def test_what_is_published_is_not_asked_again(prompts: Path, whole: Path, run: Run) -> None:
    engine = FakeEngine()
    summary = run(prompts, whole, engine=engine, **SMALL)
    assert engine.batches == []
    assert summary.counts.samples == 8


def test_an_interruption_and_an_engine_that_fails_keep_what_is_pending(
    prompts: Path, whole: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (KeyboardInterrupt, RuntimeError):
        engine = FakeEngine()

        def answer(
            prompts: Any, error: type[BaseException] = error, engine: Any = engine, **given: Any
        ) -> Any:
            if len(engine.batches) == 2:
                raise error
            return FakeEngine.answer(engine, prompts, **given)

        monkeypatch.setattr(engine, "answer", answer)
        out = tmp_path / error.__name__
        with pytest.raises(error):
            run(prompts, out, engine=engine, batch_size=2)
        assert len(CapturedDataset(out)) == 4
        assert_goes_on(prompts, out, whole, run)


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
@pytest.mark.parametrize("kind", ["samples", "features"])
def test_a_truncated_shard_is_captured_again(
    kind: str, keep: int, prompts: Path, whole: Path, tmp_path: Path, run: Run
) -> None:
    out = shutil.copytree(whole, tmp_path / "out")
    shard = sorted((out / kind).iterdir())[0]
    os.truncate(shard, keep if keep >= 0 else shard.stat().st_size + keep)
    with pytest.raises(MmspecError, match=re.escape(str(shard))):
        CapturedDataset(out)
    assert f"{kind}/{shard.name} was broken" in assert_goes_on(prompts, out, whole, run).mended[0]


@pytest.mark.parametrize("kind", ["samples", "features"])
def test_a_shard_that_is_gone_or_renamed_is_captured_again(
    kind: str, prompts: Path, whole: Path, tmp_path: Path, run: Run
) -> None:
    out = shutil.copytree(whole, tmp_path / "out")
    shard = sorted((out / kind).iterdir())[0]
    shard.rename(shard.with_name("renamed.safetensors"))
    with pytest.raises(MmspecError, match="missing; restore the shard, or run the capture again"):
        CapturedDataset(out)
    assert_goes_on(prompts, out, whole, run)
    assert (out / kind / "renamed.safetensors").exists()


def test_prompts_may_grow(prompts: Path, whole: Path, tmp_path: Path, run: Run, write: Write) -> None:
    lines = prompts.read_text().splitlines()
    fewer = write(*lines[3:5], name="fewer.jsonl")
    run(fewer, tmp_path / "out", **SMALL)
    assert_goes_on(prompts, tmp_path / "out", whole, run)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"temperature": 0.7}, "temperature 0.7, not 0.0"),
        ({"seed": 1}, "seed 1, not 0"),
        ({"max_tokens": 9}, "max_tokens 9, not 256"),
        ({"all_turns": True}, "all_turns True, not False"),
        ({"dtype": "float16"}, "dtype float16, not float32"),
        ({"target": replace(TARGET, fingerprint="e" * 64)}, "fingerprint e"),
        ({"target": replace(TARGET, aux_layer_ids=(1, 3))}, r"aux_layer_ids \[1, 3\], not \[1, 2\]"),
    ],
)
def test_other_settings_are_refused(
    change: dict[str, Any], named: str, prompts: Path, whole: Path, run: Run
) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*.safetensors")}
    with pytest.raises(MmspecError, match=named):
        run(prompts, whole, **change)
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*.safetensors")} == before


def test_sizes_and_batches_may_change(prompts: Path, whole: Path, run: Run) -> None:
    assert run(prompts, whole, shard_bytes=99_999, batch_size=5, max_bytes=10**9).counts.samples == 8


def test_a_shard_of_another_capture_is_refused(prompts: Path, whole: Path, tmp_path: Path, run: Run) -> None:
    run(prompts, tmp_path / "other", seed=5)
    shutil.copy(tmp_path / "other/samples/00000.safetensors", whole / "samples/00077.safetensors")
    with pytest.raises(MmspecError, match="a shard of another capture; move it"):
        run(prompts, whole, **SMALL)


def test_folders_of_others_are_left_alone(prompts: Path, whole: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(MmspecError, match=r"holds notes.txt and no manifest.json"):
        run(prompts, tmp_path / "mine")
    with pytest.raises(MmspecError, match="this is a file"):
        run(prompts, prompts)
    (whole / "manifest.json").unlink()
    with pytest.raises(MmspecError, match=r"no manifest\.json"):
        run(prompts, whole)


def test_two_captures_do_not_write_at_once(prompts: Path, tmp_path: Path, run: Run) -> None:
    engine = FakeEngine()

    def answer(prompts_: Any, **given: Any) -> Any:
        with pytest.raises(MmspecError, match="another capture writes here"):
            run(prompts, tmp_path / "out")
        return FakeEngine.answer(engine, prompts_, **given)

    engine.answer = answer  # type: ignore[method-assign]
    run(prompts, tmp_path / "out", engine=engine)


@pytest.mark.parametrize(
    ("text", "named"),
    [("{", "file: "), ("{}", "model"), (None, "no manifest.json"), ("future", "format")],
)
def test_a_manifest_that_cannot_be_used_is_one_line(text: str | None, named: str, whole: Path) -> None:
    path = whole / "manifest.json"
    written = json.loads(path.read_text())
    path.unlink()
    if text is not None:
        path.write_text(json.dumps({**written, "format": 2}) if text == "future" else text)
    with pytest.raises(MmspecError, match=named) as caught:
        CapturedDataset(whole)
    assert "\n" not in str(caught.value)


def test_features_that_no_shard_holds_are_named(write: Write, tmp_path: Path, run: Run) -> None:
    run(write({"messages": [user("x", "red.png")]}), tmp_path / "out")
    path = tmp_path / "out" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "features": []}))
    with pytest.raises(MmspecError, match="no features of picture"):
        CapturedDataset(tmp_path / "out")
