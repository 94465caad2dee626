"""What a check finds out about the target: sizes, tokenizer, weights, parallel parts."""

from pathlib import Path

import pytest

from mmspec.heads.check import check_head, require_fit
from mmspec.heads.target import find_target
from mmspec.heads.vision import ImageSummary
from tests.conftest import Checkpoints
from tests.unit.heads.conftest import Pair, copy_pair


@pytest.mark.parametrize(
    ("size", "target_size", "pattern"),
    [
        (1, None, None),
        (2, 2, None),
        (1, 4, "2 attention heads"),
        (1, 2, None),
        (2, 4, "draft_tensor_parallel_size is 2, the target's size 4"),
        (
            4,
            4,
            "cannot be cut into 4 parts, as many as the target's; take --tensor-parallel-size 2, or serve without",
        ),
    ],
)
def test_parts_of_a_head(size: int, target_size: int | None, pattern: str | None, tiny: Checkpoints) -> None:
    found = check_head(
        tiny["eagle3"],
        tiny["qwen2_5_vl"],
        draft_tensor_parallel_size=size,
        tensor_parallel_size=target_size,
    )

    assert [mismatch.aspect for mismatch in found] == (["parallel size"] if pattern else [])
    assert not pattern or pattern in str(found[0])


def test_a_tokenizer_that_means_something_else(pair: Pair) -> None:
    tokenizer = pair.target / "tokenizer.json"
    (pair.head / "tokenizer.json").write_text(tokenizer.read_text())
    assert check_head(pair.head, pair.target) == []

    tokenizer.write_text(tokenizer.read_text().replace("<|im_end|>", "<|end|>"))

    (mismatch,) = check_head(pair.head, pair.target)
    assert mismatch.fatal
    assert str(mismatch).startswith(
        "tokenizer: tokenizer.json of the head differs from the target's in 2 tokens"
    )


def test_the_right_target_by_its_fingerprint(pair: Pair) -> None:
    target = find_target(pair.target)
    assert target is not None
    pair.set_head(mmspec={"target_fingerprint": target.fingerprint})

    assert check_head(pair.head, pair.target) == []


def test_sizes_that_a_target_leaves_to_its_class(pair: Pair) -> None:
    """As LLaVA's checkpoints on the hub do, whose language model is a Llama of 4096."""
    pair.set_target(
        model_type="llava", text_config={"model_type": "llama", "vocab_size": 512}, architectures=[]
    )

    assert "the target's are 4096 wide" in " ".join(map(str, check_head(pair.head, pair.target)))


def test_a_hub_name_that_is_not_here(pair: Pair) -> None:
    (mismatch,) = check_head(pair.head, "nobody/has-this")

    assert not mismatch.fatal
    assert "nobody/has-this could not be read" in str(mismatch)
    require_fit(pair.head, "nobody/has-this")
    require_fit("nobody/has-this-head", pair.target)


def test_deepstack_is_a_note(tiny: Checkpoints, tmp_path: Path) -> None:
    pair = copy_pair(tiny, tmp_path, "eagle3_speculators", "qwen3_vl")
    pair.set_head(eagle_aux_hidden_state_layer_ids=[3, 4, 5])
    assert check_head(pair.head, pair.target) == []

    pair.set_head(eagle_aux_hidden_state_layer_ids=[1, 2, 5])

    (mismatch,) = check_head(pair.head, pair.target)
    assert "layer 1, 2 lies before the last of the 3 layers" in str(mismatch)
    assert not mismatch.fatal


@pytest.mark.parametrize("vision", ["features", "global"])
def test_a_head_that_sees_fits_a_target_that_does(vision: str, pair: Pair) -> None:
    pair.set_head(mmspec={"vision": vision, "summary_size": 8})
    if vision == "global":
        summary = ImageSummary(64, 8).state_dict()
        pair.change(lambda t: t.update({f"vision.{name}": value for name, value in summary.items()}))

    assert check_head(pair.head, pair.target) == []


def test_an_older_head_that_sees_has_to_be_converted(tiny: Checkpoints, tmp_path: Path) -> None:
    pair = copy_pair(tiny, tmp_path, "eagle3", "qwen2_5_vl")
    pair.set_head(mmspec={"vision": "features"})

    (mismatch,) = check_head(pair.head, pair.target)

    assert "only heads in speculators' format" in str(mismatch)


def test_layers_named_by_an_older_head_in_another_place(tiny: Checkpoints, tmp_path: Path) -> None:
    pair = copy_pair(tiny, tmp_path, "eagle3", "qwen2_5_vl")
    pair.set_head(
        eagle_aux_hidden_state_layer_ids=None, eagle_config={"eagle_aux_hidden_state_layer_ids": [2, 5]}
    )
    pair.change(lambda tensors: tensors.update({"fc.weight": tensors["fc.weight"][:, :128].clone()}))

    assert check_head(pair.head, pair.target) == []
