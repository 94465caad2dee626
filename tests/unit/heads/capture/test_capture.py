"""The loop of capture with a fake engine: what is stored, what is skipped, where it stops."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mmspec.errors import MmspecError
from mmspec.heads.capture import CapturedDataset, Summary
from tests.unit.heads.capture.fake import (
    AUX,
    END,
    HIDDEN,
    PLACEHOLDER,
    TARGET,
    FakeEngine,
    features_of,
    states_of,
    user,
)

MANIFEST = 1 << 16  # kept free for it
Write = Callable[..., Path]
Run = Callable[..., Summary]


def contents(folder: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """Samples by conversation and part, whatever shard they are in."""
    dataset = CapturedDataset(folder)
    records = [dataset.record(index) for index in range(len(dataset))]
    return {(record.key, record.part): dataset[index] for index, record in enumerate(records)}


def assert_same(left: Path, right: Path) -> None:
    ours, theirs = contents(left), contents(right)
    assert ours.keys() == theirs.keys()
    for key, sample in ours.items():
        for name, value in sample.items():
            other = theirs[key][name]
            assert other is value is None or torch.equal(value, other), (key, name)


def said(sample: dict[str, Any]) -> bytes:
    """Tokens of the loss mask, of which an answer ends with END."""
    return bytes(sample["input_ids"][sample["loss_mask"]].tolist())


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_samples_hold_what_the_target_computed(prompts: Path, tmp_path: Path, run: Run) -> None:
    summary = run(prompts, tmp_path / "out", batch_size=3)

    dataset = CapturedDataset(tmp_path / "out")
    assert len(dataset) == summary.counts.samples == 8
    for index in range(len(dataset)):
        sample, ids = dataset[index], dataset[index]["input_ids"].tolist()
        states = states_of(ids)
        assert torch.equal(sample["hidden_states"], states.hidden_states)
        assert torch.equal(sample["last_hidden"], states.last_hidden)
        assert torch.equal(sample["mrope_positions"], states.mrope_positions)
        assert sample["positions"].tolist() == list(range(len(ids)))
        assert sample["is_visual"].tolist() == [token == PLACEHOLDER for token in ids]
        assert sample["hidden_states"].shape == (len(ids), len(AUX) * HIDDEN)
        assert said(sample)[-1] == END and len(said(sample)) == 10
    assert summary.counts.tokens == sum(len(dataset[index]["input_ids"]) for index in range(8))
    assert summary.counts.answer_tokens == 80


def test_features_are_those_of_the_pictures_in_order_and_stored_once(
    prompts: Path, tmp_path: Path, run: Run
) -> None:
    summary = run(prompts, tmp_path / "out")

    dataset = CapturedDataset(tmp_path / "out")
    assert summary.counts.pictures == 2
    for index in range(len(dataset)):
        sample, keys = dataset[index], dataset.record(index).pictures
        if not keys:
            assert sample["features"] is None
            continue
        widths = [3 if key == dataset.record(1).pictures[0] else 5 for key in keys]  # of red.png and blue.png
        expected = [features_of(key, width) for key, width in zip(keys, widths, strict=True)]
        assert torch.equal(sample["features"], torch.cat(expected))
        assert len(sample["features"]) == sample["is_visual"].sum()


def test_turns_share_a_sequence_where_the_template_keeps_the_answers_tokens(
    write: Write, tmp_path: Path, run: Run
) -> None:
    prompts = write({"messages": [user("a", "red.png"), user("b"), user("c")]})

    run(prompts, tmp_path / "same", all_turns=True)
    run(prompts, tmp_path / "other", all_turns=True, engine=FakeEngine(canonical=False))

    (together,) = contents(tmp_path / "same").values()
    apart = list(contents(tmp_path / "other").values())
    assert said(together).count(END) == 3 and len(said(together)) == 30
    assert [len(sample["input_ids"][sample["loss_mask"]]) for sample in apart] == [10, 10, 10]
    assert len(apart[2]["input_ids"]) == len(together["input_ids"])


def test_what_cannot_be_used_is_skipped_counted_and_named(write: Write, tmp_path: Path, run: Run) -> None:
    good = {"messages": [user("x", "red.png")]}
    prompts = write(good, "{", {"messages": [user("x", "none.png")]}, {"messages": [user("y" * 600)]}, good)

    summary = run(prompts, tmp_path / "out", batch_size=2)

    manifest = CapturedDataset(tmp_path / "out").manifest
    assert summary.counts.samples == 2 and manifest.complete
    assert [skipped.line for skipped in summary.skipped] == [2, 3, 4]
    assert [skipped.line for skipped in manifest.skipped] == [2, 3, 4]
    assert "none.png" in summary.skipped[1].reason
    assert "at most 500 fit" in summary.skipped[2].reason


def test_a_later_turn_that_does_not_fit_keeps_the_earlier_ones(
    write: Write, tmp_path: Path, run: Run
) -> None:
    summary = run(write({"messages": [user("a"), user("y" * 600)]}), tmp_path / "out", all_turns=True)
    assert summary.counts.samples == 1
    assert "turn 2" in summary.skipped[0].reason


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "the file is empty"),
        (["{", "[]"], "nothing usable in 2 lines; line 1"),
        ([{"messages": [user("x", "none.png")]}], "nothing usable in 1 lines; line 1: picture none.png"),
    ],
)
def test_a_dataset_without_anything_usable_is_an_error(
    lines: list[Any], reason: str, write: Write, tmp_path: Path, run: Run
) -> None:
    with pytest.raises(MmspecError, match=reason):
        run(write(*lines), tmp_path / "out")


def test_states_that_are_no_numbers_skip_their_line_alone(
    prompts: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def extract(self: FakeEngine, sequences: Any) -> Any:
        for number, sequence in enumerate(sequences):
            states = states_of(sequence.token_ids)
            yield replace(states, last_hidden=states.last_hidden * float("nan")) if number == 2 else states

    monkeypatch.setattr(FakeEngine, "extract", extract)
    summary = run(prompts, tmp_path / "out")
    assert summary.counts.samples == 7
    assert [(skipped.line, "NaN" in skipped.reason) for skipped in summary.skipped] == [(3, True)]


def test_answers_depend_on_temperature_and_seed_but_on_no_batch(
    prompts: Path, tmp_path: Path, run: Run
) -> None:
    cold = run(prompts, tmp_path / "cold")
    run(prompts, tmp_path / "hot", temperature=1.0, seed=1)
    run(prompts, tmp_path / "hot, one by one", temperature=1.0, seed=1, batch_size=1)
    run(prompts, tmp_path / "other seed", temperature=1.0, seed=2)

    assert_same(tmp_path / "hot", tmp_path / "hot, one by one")
    answers = [
        [said(sample) for sample in contents(tmp_path / name).values()]
        for name in ("cold", "hot", "other seed")
    ]
    assert len({tuple(some) for some in answers}) == 3
    assert cold.counts.samples == 8


def test_shards_stay_below_their_size(prompts: Path, tmp_path: Path, run: Run) -> None:
    run(prompts, tmp_path / "whole")
    run(prompts, tmp_path / "small", shard_bytes=12_000)

    sizes = [path.stat().st_size for path in (tmp_path / "small").glob("*/*.safetensors")]
    assert len(sizes) > 4
    assert max(sizes) < 12_000 + 8 * 2048  # the header comes on top
    assert_same(tmp_path / "whole", tmp_path / "small")


def test_the_bound_on_bytes_holds_and_a_larger_one_goes_on(prompts: Path, tmp_path: Path, run: Run) -> None:
    whole = run(prompts, tmp_path / "whole")
    bound = whole.bytes + MANIFEST - 8_000

    first = run(prompts, tmp_path / "out", max_bytes=bound, batch_size=2)
    assert first.full and 0 < first.counts.samples < 8
    assert size_of(tmp_path / "out") <= bound
    assert not CapturedDataset(tmp_path / "out").manifest.complete

    again = run(prompts, tmp_path / "out", max_bytes=bound, batch_size=2)
    assert again.full and size_of(tmp_path / "out") <= bound
    assert not run(prompts, tmp_path / "out").full
    assert_same(tmp_path / "whole", tmp_path / "out")


def test_a_bound_below_one_conversation_is_refused(prompts: Path, tmp_path: Path, run: Run) -> None:
    with pytest.raises(MmspecError, match="larger --max-bytes"):
        run(prompts, tmp_path / "out", max_bytes=1000)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_states_and_features_are_stored_in_the_precision_asked_for(
    dtype: str, prompts: Path, tmp_path: Path, run: Run
) -> None:
    run(prompts, tmp_path / "out", dtype=dtype)
    sample = CapturedDataset(tmp_path / "out")[1]
    wanted = getattr(torch, dtype)
    assert {sample[name].dtype for name in ("hidden_states", "last_hidden", "features")} == {wanted}
    exact = states_of(sample["input_ids"].tolist()).last_hidden
    assert torch.equal(sample["last_hidden"], exact.to(wanted))


def test_targets_without_mrope_and_pictures(write: Write, tmp_path: Path, run: Run, monkeypatch: Any) -> None:
    def extract(self: FakeEngine, sequences: Any) -> Any:
        return (replace(states_of(sequence.token_ids), mrope_positions=None) for sequence in sequences)

    monkeypatch.setattr(FakeEngine, "extract", extract)
    run(
        write({"messages": [user("x")]}),
        tmp_path / "out",
        target=replace(TARGET, mrope=False, multimodal=False),
    )
    sample = CapturedDataset(tmp_path / "out")[0]
    assert sample["mrope_positions"] is None and sample["features"] is None


def test_the_manifest_tells_what_made_the_data(prompts: Path, tmp_path: Path, run: Run) -> None:
    run(prompts, tmp_path / "out", temperature=0.5, seed=7)
    written = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert written["fingerprint"] == TARGET.fingerprint
    assert written["aux_layer_ids"] == list(AUX)
    assert (written["hidden_size"], written["vocab_size"]) == (HIDDEN, 256)
    assert (written["temperature"], written["seed"], written["dtype"]) == (0.5, 7, "float32")
    assert written["complete"] is True
