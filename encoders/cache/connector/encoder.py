"""What an engine's vision tower is: its weights, and what else its features depend on."""

import hashlib
import json
import logging
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmspec.encoders.cache.keys import Encoder, Setting
from mmspec.encoders.cache.weights import checkpoint_fingerprint, tensor_names
from mmspec.errors import MmspecError

_log = logging.getLogger("vllm.plugins.mmspec")

# What vLLM loads unchanged from safetensors files.
_LOAD_FORMATS = ("auto", "hf", "safetensors", "fastsafetensors", "runai_streamer")
# Everything else in a checkpoint makes features, or is small.
_LANGUAGE = re.compile(
    r"(model\.)?(language_model|text_model|layers|embed_tokens|norm|lm_head)\.|(lm_head|llm|language_model)\."
)
_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
_NAMES_ONLY = ("_name_or_path", "transformers_version", "text_config", "architectures")
_OPTIONS = (
    "mm_processor_kwargs",
    "media_io_kwargs",
    "video_pruning_rate",
    "video_pruning_method",
    "mm_encoder_attn_dtype",
    "mm_encoder_fp8_scale_path",
)


def encoder_of(vllm_config: Any) -> Encoder:
    """The encoder of an engine; without a fingerprint where its weights are not those of its checkpoint's files."""
    model = vllm_config.model_config
    folder = checkpoint_folder(vllm_config)
    return Encoder(
        weights=_weights(vllm_config, folder),
        dtype=str(model.dtype).removeprefix("torch."),
        width=model.get_inputs_embeds_size(),
        processor=_settings(vllm_config, folder),
        model=str(model.served_model_name or model.model),
    )


def checkpoint_folder(vllm_config: Any) -> Path | None:
    """Where the checkpoint's files lie on this machine, if they do."""
    model, load = vllm_config.model_config, vllm_config.load_config
    if Path(model.model).is_dir():
        return Path(model.model)
    try:
        from huggingface_hub import snapshot_download

        found = snapshot_download(
            model.model, revision=model.revision, cache_dir=load.download_dir, local_files_only=True
        )
    except Exception:  # of the hub, of the network, of names that are none of the hub's
        return None
    return Path(found)


def vision_tensors(names: list[str]) -> list[str]:
    """Of the tensors of a checkpoint those that are not the language model's."""
    return [name for name in names if not _LANGUAGE.match(name)]


def _weights(vllm_config: Any, folder: Path | None) -> str:
    changed = (
        vllm_config.load_config.load_format not in _LOAD_FORMATS or vllm_config.model_config.quantization
    )
    if folder is None or changed:
        return ""
    started = time.perf_counter()
    try:
        fingerprint = checkpoint_fingerprint(folder, tuple(vision_tensors(tensor_names(folder))))
    except MmspecError as error:
        _log.warning("%s", error)
        return ""
    _log.info("encoder cache: fingerprint of the vision tower in %.1f s", time.perf_counter() - started)
    return fingerprint


def _settings(vllm_config: Any, folder: Path | None) -> dict[str, Setting]:
    model = vllm_config.model_config
    multimodal = model.multimodal_config
    return {
        "config": _digest(_without(model.hf_config.to_dict(), _NAMES_ONLY)),
        "processor": _digest({name: _text(folder, name) for name in _PROCESSOR_FILES}),
        "options": _digest({name: getattr(multimodal, name, None) for name in _OPTIONS}),
        "quantization": str(model.quantization),
    }


def _without(config: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in names}


def _text(folder: Path | None, name: str) -> str | None:
    path = None if folder is None else folder / name
    return path.read_text(errors="replace") if path is not None and path.is_file() else None


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
