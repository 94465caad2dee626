"""Conversion against speculators' own converter and model."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mmspec.heads.formats import convert_head
from tests.unit.heads.conftest import Pair

pytestmark = pytest.mark.slow


def logits(folder: Path, target: Path) -> torch.Tensor:
    """What speculators' model makes of fixed states and tokens with the head in `folder`: [steps × tokens, drafted]."""
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig

    config = Eagle3SpeculatorConfig.from_pretrained(folder)
    config.speculators_config.verifier.name_or_path = str(target)
    config.transformer_layer_config._attn_implementation = "eager"
    head = Eagle3DraftModel.from_pretrained(folder, config=config).eval()
    made = torch.Generator().manual_seed(0)
    # Speculators 0.9 leaves an embedding that is not in the file as whatever was in memory, most times.
    head.embed_tokens.weight.data.normal_(generator=made)
    found: list[torch.Tensor] = []
    head.lm_head.register_forward_hook(lambda module, given, made: found.append(made[0]))
    with torch.no_grad():
        head(
            torch.randn(1, 8, head.fc.in_features, generator=made),
            torch.randint(512, (1, 8), generator=made),
            torch.zeros(1, 8, dtype=torch.long),
            ttt_steps=3,
        )
    return torch.cat(found)


def test_an_old_head_says_what_speculators_own_converter_makes_it_say(old: Pair, tmp_path: Path) -> None:
    from speculators.convert.eagle.eagle3_converter import Eagle3Converter

    layers = json.loads((old.head / "config.json").read_text())["eagle_aux_hidden_state_layer_ids"]
    Eagle3Converter().convert(
        old.head,
        tmp_path / "theirs",
        str(old.target),
        validate=False,
        eagle_aux_hidden_state_layer_ids=layers,
    )

    convert_head(old.head, tmp_path / "ours")

    expected = logits(tmp_path / "theirs", old.target)
    assert expected.isfinite().all() and expected.std() > 0.1
    assert torch.equal(logits(tmp_path / "ours", old.target), expected)
    theirs, ours = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "ours"))
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)


def test_converting_again_changes_nothing(pair: Pair, tmp_path: Path) -> None:
    convert_head(pair.head, tmp_path / "once")
    convert_head(tmp_path / "once", tmp_path / "twice")

    assert torch.equal(logits(tmp_path / "once", pair.target), logits(pair.head, pair.target))
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()


def test_speculators_reads_the_configuration_as_its_own(old: Pair, tmp_path: Path) -> None:
    from speculators.models.eagle3 import Eagle3SpeculatorConfig

    written = convert_head(old.head, tmp_path / "out").config

    Eagle3SpeculatorConfig.from_pretrained(tmp_path / "out").save_pretrained(tmp_path / "again")
    again = json.loads((tmp_path / "again" / "config.json").read_text())
    assert {name: again[name] for name in written} == written
