"""The reader, where `test_capture` and `test_resume` do not use it already."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mmspec.heads.capture import CapturedDataset, Summary

Run = Callable[..., Summary]


@pytest.fixture
def dataset(prompts: Path, tmp_path: Path, run: Run) -> CapturedDataset:
    run(prompts, tmp_path / "out", shard_bytes=12_000, batch_size=2)
    return CapturedDataset(tmp_path / "out")


def test_samples_have_the_shapes_and_types_that_training_expects(dataset: CapturedDataset) -> None:
    manifest = dataset.manifest
    layers, hidden = len(manifest.aux_layer_ids), manifest.hidden_size
    for sample in (dataset[index] for index in range(len(dataset))):
        n, m = len(sample["input_ids"]), int(sample["is_visual"].sum())
        expected = {
            "input_ids": ((n,), torch.int64),
            "loss_mask": ((n,), torch.bool),
            "positions": ((n,), torch.int64),
            "mrope_positions": ((3, n), torch.int64),
            "hidden_states": ((n, layers * hidden), torch.float32),
            "last_hidden": ((n, hidden), torch.float32),
            "is_visual": ((n,), torch.bool),
            "features": ((m, hidden), torch.float32),
        }
        assert sample.keys() == expected.keys()
        for name, (shape, dtype) in expected.items():
            if sample[name] is not None:
                assert (tuple(sample[name].shape), sample[name].dtype) == (shape, dtype), name


def test_indices_count_from_both_ends_and_end(dataset: CapturedDataset) -> None:
    assert torch.equal(dataset[-1]["input_ids"], dataset[len(dataset) - 1]["input_ids"])
    with pytest.raises(IndexError):
        dataset[len(dataset)]
    assert len(list(dataset)) == len(dataset)


def test_opening_reads_no_states_and_workers_get_their_own_maps(dataset: CapturedDataset) -> None:
    copy = pickle.loads(pickle.dumps(dataset))
    assert torch.equal(copy[3]["hidden_states"], dataset[3]["hidden_states"])
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=0)
    assert sum(len(sample["input_ids"]) for sample in loader) == dataset.manifest.counts.tokens


def test_a_record_tells_the_length_without_reading(dataset: CapturedDataset) -> None:
    assert [dataset.record(index).tokens for index in range(len(dataset))] == [
        len(dataset[index]["input_ids"]) for index in range(len(dataset))
    ]
