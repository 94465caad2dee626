"""A good tiny head beside the files of its target, to be spoilt in one thing."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.conftest import Checkpoints

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Pair:
    """Folders of a head and its target, with what changes them."""

    head: Path
    target: Path

    def set_head(self, **values: Any) -> None:
        _edit(self.head, lambda config: config.update(values))

    def drop_from_head(self, name: str) -> None:
        _edit(self.head, lambda config: config.pop(name))

    def set_layer(self, **values: Any) -> None:
        _edit(self.head, lambda config: config["transformer_layer_config"].update(values))

    def set_target(self, **values: Any) -> None:
        _edit(self.target, lambda config: config.update(values))

    def set_text(self, **values: Any) -> None:
        _edit(self.target, lambda config: config["text_config"].update(values))

    def change(self, how: Callable[[Tensors], object]) -> None:
        """Rewrites the head's weights."""
        tensors = {name: value.clone() for name, value in load_file(self.head / "model.safetensors").items()}
        how(tensors)
        save_file(tensors, self.head / "model.safetensors", metadata={"format": "pt"})


@pytest.fixture
def pair(tiny: Checkpoints, tmp_path: Path) -> Pair:
    """A head in speculators' format and the Qwen2.5-VL that it was made for."""
    return copy_pair(tiny, tmp_path, "eagle3_speculators", "qwen2_5_vl")


@pytest.fixture
def old(tiny: Checkpoints, tmp_path: Path) -> Pair:
    """A head of the older kind: `LlamaForCausalLMEagle3`, `midlayer`, a flat configuration."""
    return copy_pair(tiny, tmp_path, "eagle3", "qwen2_5_vl")


def copy_pair(tiny: Checkpoints, folder: Path, head: str, target: str) -> Pair:
    shutil.copytree(tiny[head], folder / "head")
    shutil.copytree(tiny[target], folder / "target")
    return Pair(folder / "head", folder / "target")


def _edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))
