"""What tells one target from another, and which layers it has."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mmspec.errors import MmspecError
from mmspec.heads.capture import CaptureSettings, fingerprint, parse_size
from mmspec.heads.capture import target as target_module
from mmspec.heads.capture.target import check_layers


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"hidden_size": 8, "layers": 2}))
    save_file({"weight": torch.arange(100_000.0)}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("whole", [1 << 30, 1000], ids=["whole", "sampled"])
def test_a_fingerprint_is_that_of_the_weights_and_the_configuration(
    whole: int, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_module, "_WHOLE", whole)
    before = fingerprint(str(checkpoint))
    (checkpoint / "config.json").write_text(json.dumps({"layers": 2, "hidden_size": 8}, indent=4))
    (checkpoint / "README.md").write_text("words")
    assert fingerprint(str(checkpoint)) == before

    (checkpoint / "config.json").write_text(json.dumps({"layers": 3, "hidden_size": 8}))
    configured = fingerprint(str(checkpoint))
    save_file({"weight": torch.arange(100_000.0) + 1}, checkpoint / "model.safetensors")
    trained = fingerprint(str(checkpoint))
    save_file({"other": torch.arange(100_000.0) + 1}, checkpoint / "model.safetensors")
    assert len({before, configured, trained, fingerprint(str(checkpoint))}) == 4


@pytest.mark.parametrize("ids", [(2, 2, 4), (4, 2), (0, 8), (-1, 2)])
def test_layers_that_are_not_there_are_refused(ids: tuple[int, ...]) -> None:
    with pytest.raises(MmspecError, match="layers 0 to 7; give ascending ones with --aux-layers"):
        check_layers(ids, 8)
    assert check_layers([2, 4, 5], 8) == (2, 4, 5)


def test_sizes_are_read_with_their_units() -> None:
    assert parse_size("256MB", "--shard-size") == 256_000_000
    assert parse_size("1GiB", "--max-bytes") == 1 << 30
    with pytest.raises(MmspecError, match="--max-bytes: 'much' is not a size"):
        parse_size("much", "--max-bytes")


@pytest.mark.parametrize(
    "wrong", [{"dtype": "int8"}, {"temperature": -1}, {"top_p": 0}, {"batch_size": 0}, {"max_bytes": 0}]
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float], tmp_path: Path) -> None:
    with pytest.raises(MmspecError):
        CaptureSettings(prompts=tmp_path, folder=tmp_path, **wrong)  # type: ignore[arg-type]
