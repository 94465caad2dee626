"""Files that are no head, or cut off, are named in one line."""

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mmspec.errors import MmspecError
from mmspec.heads.check import check_head, require_fit
from tests.conftest import Checkpoints
from tests.unit.heads.conftest import Pair


@pytest.mark.parametrize("kept", [0, 7, 100, 0.5, -1])
def test_a_truncated_file_is_named(kept: float, pair: Pair) -> None:
    path = pair.head / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept) if isinstance(kept, float) else kept])

    with pytest.raises(MmspecError, match=r"model\.safetensors: truncated or not a safetensors file"):
        require_fit(pair.head, pair.target)


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("config.json", "", "config.json: cannot be read"),
        ("config.json", "[]", "not a JSON object"),
        (
            "config.json",
            '{"speculators_model_type": "dflash"}',
            "a dflash head of speculators is no EAGLE-3 head",
        ),
        ("config.json", '{"speculators_model_type": "eagle3"}', "no transformer_layer_config"),
        (
            "model.safetensors.index.json",
            '{"weight_map": {"a": "model-2.safetensors"}}',
            "model-2.safetensors",
        ),
    ],
)
def test_files_that_are_no_head(name: str, content: str, named: str, pair: Pair) -> None:
    (pair.head / name).write_text(content)

    with pytest.raises(MmspecError, match=named):
        check_head(pair.head, pair.target)


def test_a_size_that_is_missing_is_named(pair: Pair) -> None:
    pair.set_layer(hidden_size=None)

    with pytest.raises(MmspecError, match=r"transformer_layer_config\.hidden_size in config\.json is None"):
        check_head(pair.head, pair.target)


def test_folders_that_are_no_head(tmp_path: Path, tiny: Checkpoints, pair: Pair) -> None:
    with pytest.raises(MmspecError, match="LlamaForCausalLM is no EAGLE-3 head"):
        check_head(tiny["llama"], pair.target)
    with pytest.raises(MmspecError, match="no such folder"):
        check_head(tmp_path / "nowhere", pair.target)
    (pair.head / "model.safetensors").unlink()
    with pytest.raises(MmspecError, match="no weights"):
        check_head(pair.head, pair.target)


def test_sizes_that_contradict_each_other(pair: Pair) -> None:
    pair.set_head(draft_vocab_size=600)

    assert "draft_vocab_size 600 is above vocab_size 512" in " ".join(
        map(str, check_head(pair.head, pair.target))
    )


def test_a_pickle_that_would_run_code_is_refused(pair: Pair) -> None:
    (pair.head / "model.safetensors").unlink()
    (pair.head / "pytorch_model.bin").write_bytes(pickle.dumps({"fc.weight": print}))

    with pytest.raises(MmspecError, match=r"pytorch_model\.bin"):
        check_head(pair.head, pair.target)


def test_a_truncated_pickle_is_named(pair: Pair) -> None:
    tensors = load_file(pair.head / "model.safetensors")
    (pair.head / "model.safetensors").unlink()
    path = pair.head / "pytorch_model.bin"
    torch.save(tensors, path)
    assert check_head(pair.head, pair.target) == []

    path.write_bytes(path.read_bytes()[:-1000])

    with pytest.raises(MmspecError, match=r"pytorch_model\.bin: truncated"):
        check_head(pair.head, pair.target)
