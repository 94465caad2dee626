"""What capture needs to know of a target before its weights load, and what tells it apart from another."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mmspec.errors import MmspecError

_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
_WHOLE = 1 << 30  # larger files are hashed in samples
_SAMPLES, _SAMPLE = 256, 1 << 16
_MIB = 1 << 20


@dataclass(frozen=True)
class CaptureTarget:
    """A target model. `num_layers` is also the id of the state behind the last layer.

    Attributes:
        model: folder or hub name.
        dtype: in which the engine computes.
        aux_layer_ids: layers whose inputs the head sees, ascending.
    """

    model: str
    fingerprint: str
    dtype: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    multimodal: bool
    mrope: bool
    aux_layer_ids: tuple[int, ...]


def describe_target(
    model: str, aux_layer_ids: Sequence[int] | None = None, dtype: str = "auto"
) -> CaptureTarget:
    """Reads the configuration of a checkpoint as vLLM will; weights are hashed, not loaded.

    Args:
        model: folder or hub name.
        aux_layer_ids: None for vLLM's default, layers 2, n // 2 and n - 3.
        dtype: the engine's argument.

    Raises:
        MmspecError: layers that the target does not have.
    """
    from vllm.engine.arg_utils import EngineArgs

    config = EngineArgs(model=model, dtype=dtype).create_model_config()
    layers = int(config.hf_text_config.num_hidden_layers)
    return CaptureTarget(
        model=model,
        fingerprint=fingerprint(model),
        dtype=str(config.dtype).removeprefix("torch."),
        num_layers=layers,
        hidden_size=int(config.get_hidden_size()),
        vocab_size=int(config.get_vocab_size()),
        multimodal=bool(config.is_multimodal_model),
        mrope=bool(config.uses_mrope),
        aux_layer_ids=check_layers(aux_layer_ids or (2, layers // 2, layers - 3), layers),
    )


def check_layers(ids: Sequence[int], num_layers: int) -> tuple[int, ...]:
    """The ids as a tuple.

    Raises:
        MmspecError: they are not ascending, or out of range.
    """
    if list(ids) != sorted(set(ids)) or not 0 <= ids[0] <= ids[-1] < num_layers:
        raise MmspecError(
            f"auxiliary layers {', '.join(map(str, ids))}: the target has layers 0 to {num_layers - 1}; "
            "give ascending ones with --aux-layers"
        )
    return tuple(ids)


def fingerprint(model: str) -> str:
    """The sha256 over a checkpoint's config.json and weights; of files above 1 GiB, over size, header and samples."""
    folder = _folder(model)
    digest = hashlib.sha256(_canonical((folder / "config.json").read_bytes()))
    for path in sorted(path for pattern in _WEIGHTS for path in folder.glob(pattern)):
        digest.update(f"\n{path.name} {path.stat().st_size}\n".encode())
        _hash_weights(path, digest)
    return digest.hexdigest()


def _canonical(config: bytes) -> bytes:
    return json.dumps(json.loads(config), sort_keys=True).encode()


def _hash_weights(path: Path, digest: "hashlib._Hash") -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _WHOLE:
            while block := file.read(_MIB):
                digest.update(block)
            return
        # The header of a safetensors file names every tensor; it lies in the first sample or is sampled as well.
        for number in range(_SAMPLES):
            file.seek((size - _SAMPLE) * number // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE))


def _folder(model: str) -> Path:
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(model, allow_patterns=["*.json", *_WEIGHTS]))
