"""What an exported head holds; that stock vLLM loads it is seen in `tests/engine/test_head_export.py`."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mmspec.errors import MmspecError
from mmspec.heads.check import check_head
from mmspec.heads.formats import convert_head, export_head
from tests.unit.heads.conftest import Pair


def test_our_key_is_left_out_and_the_weights_stay(pair: Pair, tmp_path: Path) -> None:
    pair.set_head(mmspec={"vision": "text", "positions": "sequence"})
    (pair.head / "README.md").write_text("a card")

    head = export_head(pair.head, tmp_path / "out", target=str(pair.target))

    before, after = (load_file(folder / "model.safetensors") for folder in (pair.head, head.folder))
    assert "mmspec" not in head.config
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert sorted(path.name for path in head.folder.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    assert check_head(head.folder, pair.target) == []


def test_weights_are_written_in_another_dtype(pair: Pair, tmp_path: Path) -> None:
    head = convert_head(pair.head, tmp_path / "out", dtype="float16")

    before, after = (load_file(folder / "model.safetensors") for folder in (pair.head, head.folder))
    assert head.config["dtype"] == "float16"
    for name, value in before.items():
        kind = torch.float16 if value.is_floating_point() else value.dtype
        assert torch.equal(after[name], value.to(kind)), name


@pytest.mark.parametrize("vision", ["features", "global"])
def test_a_head_that_sees_is_refused(vision: str, pair: Pair, tmp_path: Path) -> None:
    pair.set_head(mmspec={"vision": vision})

    with pytest.raises(MmspecError, match=f"its vision is {vision}, and stock vLLM shows a draft no picture"):
        export_head(pair.head, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_vocabularies_are_checked(pair: Pair, tmp_path: Path) -> None:
    pair.set_text(vocab_size=600)

    with pytest.raises(MmspecError, match="trained for 512 tokens, the target has 600"):
        export_head(pair.head, tmp_path / "out", target=str(pair.target))
    assert not (tmp_path / "out").exists()


def test_a_head_may_take_the_place_of_its_source(pair: Pair) -> None:
    expected = load_file(pair.head / "model.safetensors")
    expected = {name: value.clone() for name, value in expected.items()}

    export_head(pair.head, pair.head, force=True)

    found = load_file(pair.head / "model.safetensors")
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_number_of_states_that_vllm_does_not_expect_is_written_down(pair: Pair, tmp_path: Path) -> None:
    pair.set_head(eagle_aux_hidden_state_layer_ids=[2, 5])
    pair.change(lambda tensors: tensors.update({"fc.weight": tensors["fc.weight"][:, :128].clone()}))
    assert [mismatch.aspect for mismatch in check_head(pair.head, pair.target)] == ["layers"]

    head = export_head(pair.head, tmp_path / "out")

    assert head.layer["num_aux_hidden_states"] == 2
    assert check_head(head.folder, pair.target) == []
