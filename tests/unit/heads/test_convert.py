"""From the older kinds to speculators' format: what is kept, added, left out and refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from mmspec.errors import MmspecError
from mmspec.heads.check import check_head
from mmspec.heads.config import HeadConfig
from mmspec.heads.formats import HeadFormat, convert_head, read_head
from tests.unit.heads.conftest import Pair, Tensors


def test_a_converted_head_is_described_in_full(old: Pair, tmp_path: Path) -> None:
    head = convert_head(old.head, tmp_path / "out", target=str(old.target))

    assert head.format is HeadFormat.SPECULATORS
    assert head.config["dtype"] == "float32"
    assert head.config["norm_before_residual"] is False
    assert head.config["speculators_config"]["verifier"] == {
        "name_or_path": str(old.target),
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    }
    assert head.config["mmspec"] == HeadConfig(vision="text", positions="sequence").model_dump()
    assert check_head(head.folder, old.target) == []


def test_weights_of_any_kind_are_read(old: Pair, tmp_path: Path) -> None:
    expected = load_file(convert_head(old.head, tmp_path / "out").folder / "model.safetensors")
    torch.save(load_file(old.head / "model.safetensors"), old.head / "pytorch_model.bin")
    (old.head / "model.safetensors").unlink()

    found = load_file(convert_head(old.head, tmp_path / "again").folder / "model.safetensors")

    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_embeddings_of_its_own_are_kept(old: Pair, tmp_path: Path) -> None:
    rows = torch.randn(512, 64)
    old.change(lambda tensors: tensors.update({"embed_tokens.weight": rows}))

    assert torch.equal(convert_head(old.head, tmp_path / "out").load()["embed_tokens.weight"], rows)


def leave_nan(tensors: Tensors) -> None:
    tensors["embed_tokens.weight"] = torch.full((512, 64), torch.nan)
    tensors["verifier_norm.weight"] = torch.ones(64)
    tensors["rotary_emb.inv_freq"] = torch.ones(16)


def test_what_training_left_behind_is_left_out(pair: Pair, tmp_path: Path) -> None:
    expected = read_head(pair.head).tensors
    pair.change(leave_nan)

    assert convert_head(pair.head, tmp_path / "out").tensors == expected


@pytest.mark.parametrize("missing", ["d2t", "t2d"])
def test_one_spelling_of_the_vocabulary_is_enough(missing: str, old: Pair, tmp_path: Path) -> None:
    expected = load_file(old.head / "model.safetensors")[missing]
    old.change(lambda tensors: tensors.pop(missing))

    assert torch.equal(convert_head(old.head, tmp_path / "out").load()[missing], expected)


def test_a_whole_vocabulary_needs_no_table(old: Pair, tmp_path: Path) -> None:
    old.set_head(draft_vocab_size=512)
    whole = {"lm_head.weight": torch.randn(512, 64), "d2t": torch.zeros(512, dtype=torch.long)}
    old.change(lambda tensors: tensors.update(whole | {"t2d": torch.ones(512, dtype=torch.bool)}))

    found = convert_head(old.head, tmp_path / "out").tensors

    assert "d2t" not in found and "t2d" not in found


@pytest.mark.parametrize(
    ("nested", "layers"), [({"eagle_aux_hidden_state_layer_ids": [1, 3, 6]}, [1, 3, 6]), (None, [2, 4, 5])]
)
def test_layers_are_found_wherever_they_are_named(
    nested: dict[str, Any] | None, layers: list[int], old: Pair, tmp_path: Path
) -> None:
    old.set_head(eagle_aux_hidden_state_layer_ids=None, eagle_config=nested)

    assert convert_head(old.head, tmp_path / "out", target=str(old.target)).aux_layers == layers


def test_3d_positions_are_written_down(old: Pair, tmp_path: Path) -> None:
    old.set_head(rope_theta=5e5, rope_scaling={"type": "mrope", "mrope_section": [4, 6, 6]})

    head = convert_head(old.head, tmp_path / "out", target=str(old.target))

    assert head.settings.positions == "mrope"
    assert head.layer["rope_parameters"] == {
        "rope_theta": 5e5,
        "rope_type": "default",
        "mrope_section": [4, 6, 6],
    }
    assert check_head(head.folder, old.target) == []


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda t: t["d2t"].add_(1), "d2t and t2d name different tokens"),
        (lambda t: [t.pop("d2t"), t.pop("t2d")], "neither d2t nor t2d"),
        (lambda t: t.pop("midlayer.mlp.up_proj.weight"), "layers.0.mlp.up_proj.weight is missing"),
        (lambda t: t.update(other=torch.ones(1)), "other belongs to no EAGLE-3 head"),
    ],
)
def test_an_inconsistent_head_leaves_nothing_behind(
    spoil: Any, named: str, old: Pair, tmp_path: Path
) -> None:
    old.change(spoil)
    before = sorted(tmp_path.iterdir())

    with pytest.raises(MmspecError, match=named):
        convert_head(old.head, tmp_path / "out")

    assert sorted(tmp_path.iterdir()) == before


def test_a_target_that_does_not_fit_is_refused(old: Pair, tmp_path: Path) -> None:
    old.set_text(vocab_size=600)

    with pytest.raises(MmspecError, match="trained for 512 tokens, the target has 600"):
        convert_head(old.head, tmp_path / "out", target=str(old.target))
    assert not (tmp_path / "out").exists()
