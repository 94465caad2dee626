"""A head on disk, whatever its format: its configuration and tensor names as speculators spells them."""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmspec.errors import MmspecError
from mmspec.heads.config import HeadConfig
from mmspec.heads.formats import single_file
from mmspec.heads.formats.tensors import (
    TensorHeader,
    load_array,
    load_tensors,
    read_json,
    tensor_headers,
)

if TYPE_CHECKING:
    from torch import Tensor

    from mmspec.heads.formats.vocabulary import Array

# What vLLM 0.32 takes for the auxiliary layers of a head that names none: three of them.
_DEFAULT_AUX_LAYERS = 3


class HeadFormat(StrEnum):
    """How a head is written."""

    SPECULATORS = "speculators"
    SINGLE_FILE = "single-file"


@dataclass(frozen=True)
class Head:
    """A head whose weights are not loaded.

    Attributes:
        config: the whole config.json in speculators' form.
        tensors: every tensor in the weight files, by speculators' names.
    """

    folder: Path
    format: HeadFormat
    config: dict[str, Any]
    tensors: dict[str, TensorHeader]
    settings: HeadConfig

    def __str__(self) -> str:
        return f"head {self.folder}"

    @property
    def layer(self) -> dict[str, Any]:
        """The configuration of the decoder layers."""
        layer: dict[str, Any] = self.config["transformer_layer_config"]
        return layer

    @property
    def aux_layers(self) -> list[int] | None:
        """The target's layers whose states the head gets, as vLLM counts them; None leaves them to vLLM."""
        return self.config.get("eagle_aux_hidden_state_layer_ids") or None

    @property
    def aux_states(self) -> int:
        """How many of the target's hidden states the head takes."""
        return len(self.aux_layers) if self.aux_layers else _DEFAULT_AUX_LAYERS

    @property
    def mrope_sections(self) -> list[int] | None:
        """Sections of the head's own rotary embedding, where it takes 3-D positions."""
        rope = self.layer.get("rope_parameters") or self.layer.get("rope_scaling") or {}
        return rope.get("mrope_section")

    @property
    def quantised(self) -> bool:
        return bool(self.config.get("quantization_config") or self.layer.get("quantization_config"))

    @cached_property
    def d2t(self) -> "Array | None":
        return load_array(self.folder, "d2t")

    @cached_property
    def t2d(self) -> "Array | None":
        return load_array(self.folder, "t2d")

    def load(self) -> dict[str, "Tensor"]:
        """Every tensor, by speculators' names."""
        return {
            single_file.speculators_name(name): value for name, value in load_tensors(self.folder).items()
        }


def read_head(folder: Path) -> Head:
    """Reads a head's configuration and the headers of its weight files.

    Raises:
        MmspecError: a file is missing, cut off or no EAGLE-3 head, or the configuration lacks what every head needs.
    """
    if not folder.is_dir():
        raise MmspecError(f"head {folder}: no such folder; give the folder of an EAGLE-3 head")
    config = read_json(folder / "config.json")
    tensors = tensor_headers(folder)
    kind = _format(folder, config, tensors)
    if kind is HeadFormat.SINGLE_FILE:
        config = single_file.speculators_config(config)
        tensors = {single_file.speculators_name(name): header for name, header in tensors.items()}
    _require_sizes(folder, config)
    return Head(folder, kind, config, tensors, HeadConfig.of(config, f"head {folder}"))


def is_head(folder: Path) -> bool:
    """Whether a folder holds an EAGLE-3 head; False also where it cannot be read."""
    try:
        _format(folder, read_json(folder / "config.json"), tensor_headers(folder))
    except MmspecError:
        return False
    return True


def _format(folder: Path, config: dict[str, Any], tensors: dict[str, TensorHeader]) -> HeadFormat:
    kind = config.get("speculators_model_type")
    if kind == "eagle3":
        return HeadFormat.SPECULATORS
    if kind is None and single_file.is_single_file(config, tensors):
        return HeadFormat.SINGLE_FILE
    names = ", ".join(map(str, config.get("architectures") or [])) or "no architecture"
    raise MmspecError(
        f"head {folder}: {f'a {kind} head of speculators' if kind else names} is no EAGLE-3 head; "
        "give a folder in speculators' eagle3 format, or of an older kind such as LlamaForCausalLMEagle3"
    )


def _require_sizes(folder: Path, config: dict[str, Any]) -> None:
    """Every size that names a shape must be there and be a positive number."""
    layer = config.get("transformer_layer_config")
    if not isinstance(layer, dict):
        raise MmspecError(f"head {folder}: config.json has no transformer_layer_config; save the head again")
    needed = {"draft_vocab_size": config.get("draft_vocab_size")}
    for name in (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
    ):
        needed[f"transformer_layer_config.{name}"] = layer.get(name)
    for name, value in needed.items():
        if not isinstance(value, int) or value < 1:
            raise MmspecError(
                f"head {folder}: {name} in config.json is {value!r}; set it to a positive number"
            )
    ids = config.get("eagle_aux_hidden_state_layer_ids")
    if ids is not None and not (isinstance(ids, list) and all(isinstance(layer_id, int) for layer_id in ids)):
        raise MmspecError(
            f"head {folder}: eagle_aux_hidden_state_layer_ids is {ids!r}; give a list of layer numbers"
        )
