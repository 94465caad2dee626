"""What a head has to know of its target: read from the target's files, without its weights."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mmspec.errors import MmspecError
from mmspec.heads.formats.tensors import read_json

_SIZES = ("hidden_size", "num_hidden_layers", "vocab_size")


@dataclass(frozen=True)
class Target:
    """A target's checkpoint folder and configuration.

    Attributes:
        text: the configuration of its language model, which is the whole of a text-only model's.
    """

    folder: Path
    config: dict[str, Any]
    text: dict[str, Any]

    def __str__(self) -> str:
        return f"target {self.folder}"

    @property
    def hidden_size(self) -> int:
        return int(self.text["hidden_size"])

    @property
    def layers(self) -> int:
        return int(self.text["num_hidden_layers"])

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding; tokenizers often know fewer tokens."""
        return int(self.text["vocab_size"])

    @property
    def architectures(self) -> list[str]:
        return [str(name) for name in self.config.get("architectures") or []]

    @property
    def dtype(self) -> str | None:
        for config in (self.config, self.text):
            if found := config.get("dtype") or config.get("torch_dtype"):
                return str(found).removeprefix("torch.")
        return None

    @property
    def quantised(self) -> bool:
        return bool(self.config.get("quantization_config") or self.text.get("quantization_config"))

    @property
    def takes_3d_positions(self) -> bool:
        """Whether the language model uses M-RoPE."""
        parts = [self.text, self.text.get("rope_parameters"), self.text.get("rope_scaling")]
        return any(isinstance(part, dict) and "mrope_section" in part for part in parts)

    @property
    def deepstack_layers(self) -> int:
        """How many of the first layers get visual features added to their output (Qwen3-VL)."""
        return len((self.config.get("vision_config") or {}).get("deepstack_visual_indexes") or [])

    @cached_property
    def fingerprint(self) -> str:
        """As capture writes it into its manifest, and training into the head."""
        from mmspec.heads.capture.target import fingerprint

        return fingerprint(str(self.folder))


def find_target(name: str | Path) -> Target | None:
    """The target behind a folder or a hub name; None for a hub name whose files are not on this disk.

    Raises:
        MmspecError: the folder is no checkpoint, or its configuration cannot be read.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir():
        cached = _cached(str(name))
        if cached is None:
            return None
        folder = cached
    config = read_json(folder / "config.json")
    return Target(folder, config, _text_config(folder, config))


def _cached(name: str) -> Path | None:
    """The folder of a hub name in the local cache."""
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(name, "config.json")
    except (ImportError, ValueError):  # no cache at all, or nothing that could be a hub name
        return None
    return Path(found).parent if isinstance(found, str) else None


def _text_config(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """The language model's part; where sizes were left at their defaults, as transformers fills them in."""
    text = config.get("text_config") or config
    if all(isinstance(text.get(name), int) for name in _SIZES):
        return dict(text)
    from transformers import AutoConfig

    try:
        filled = AutoConfig.from_pretrained(folder, local_files_only=True).get_text_config().to_dict()
    except Exception as error:  # whatever a model's own code raises
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise MmspecError(
            f"target {folder}: config.json cannot be read ({reason}); give a checkpoint folder"
        ) from None
    if missing := [name for name in _SIZES if not isinstance(filled.get(name), int)]:
        raise MmspecError(f"target {folder}: config.json has no {missing[0]}; give a checkpoint folder")
    return dict(filled)
