"""From any format that can be read to speculators', and on to a head that stock vLLM loads."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmspec.errors import MmspecError
from mmspec.heads.config import KEY, HeadConfig, without_settings
from mmspec.heads.formats.folder import carry_files, new_folder, write_head
from mmspec.heads.formats.head import Head, HeadFormat, read_head
from mmspec.heads.formats.vocabulary import drafted_tokens, inconsistency, mask, offsets
from mmspec.heads.target import Target, find_target

if TYPE_CHECKING:
    from torch import Tensor

# What training leaves in a checkpoint, and vLLM stops at.
_LEFT_OUT = ("verifier_lm_head.", "verifier_norm.", "rotary_emb.")
_NO_VERIFIER: dict[str, Any] = {
    "algorithm": "eagle3",
    "default_proposal_method": "greedy",
    "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
    "verifier": {"name_or_path": None, "architectures": []},
}
_FROM_TARGET = ("embed_tokens.weight", "lm_head.weight")


def convert_head(
    source: Path, out: Path, *, target: str | None = None, force: bool = False, dtype: str | None = None
) -> Head:
    """Writes a head in speculators' format, with our key, and returns it.

    Args:
        target: folder or hub name of the target; fills in the verifier, and the layers where the head names none.
        force: replace the head that is in `out`.
        dtype: of the weights that are written, as torch calls it; the source's if not given.

    Raises:
        MmspecError: the source cannot be read or is inconsistent, or `out` is in the way.
    """
    head = read_head(source)
    tensors = _stored(_mended(head, head.load()), dtype)
    return _write(head, out, _completed(head, tensors, target), tensors, target, force)


def export_head(
    source: Path, out: Path, *, target: str | None = None, force: bool = False, dtype: str | None = None
) -> Head:
    """Writes a `text` head that stock vLLM loads without the plugin, and returns it.

    Raises:
        MmspecError: as `convert_head`; and the head sees, which stock vLLM's draft does not.
    """
    head = read_head(source)
    if head.settings.vision != "text":
        raise MmspecError(
            f"{head}: its vision is {head.settings.vision}, and stock vLLM shows a draft no picture; "
            "serve it with mmspec, or train a head with vision text to export"
        )
    tensors = _stored(_mended(head, head.load()), dtype)
    config = without_settings(_completed(head, tensors, target))
    return _write(head, out, config, tensors, target, force)


def _write(
    head: Head,
    out: Path,
    config: dict[str, Any],
    tensors: dict[str, "Tensor"],
    target: str | None,
    force: bool,
) -> Head:
    """Writes all, reads it back and checks it before it takes its place."""
    from mmspec.heads.check import check_head, check_head_alone

    with new_folder(out, force=force) as beside:
        write_head(beside, config, tensors)
        carry_files(head.folder, beside)
        found = check_head_alone(beside) if target is None else check_head(beside, target)
        if reasons := [str(mismatch) for mismatch in found if mismatch.fatal]:
            raise MmspecError(f"{head}: {reasons[0]}")
    return read_head(out)


def _mended(head: Head, tensors: dict[str, "Tensor"]) -> dict[str, "Tensor"]:
    """The tensors without leftovers, and with both spellings of the reduced vocabulary or neither."""
    tensors = {name: value for name, value in tensors.items() if not any(part in name for part in _LEFT_OUT)}
    for name in _FROM_TARGET:
        if name in tensors and bool(tensors[name].isnan().all()):
            del tensors[name]
    drafted, known = head.config["draft_vocab_size"], head.layer["vocab_size"]
    if wrong := inconsistency(head.d2t, head.t2d, known):
        raise MmspecError(f"{head}: {wrong}; get a head whose d2t holds offsets to ascending tokens")
    if drafted == known:
        return {name: value for name, value in tensors.items() if name not in ("d2t", "t2d")}
    return tensors | _both_spellings(head, drafted, known)


def _stored(tensors: dict[str, "Tensor"], dtype: str | None) -> dict[str, "Tensor"]:
    """The tensors with all weights in `dtype`; vocabulary maps stay as they are."""
    import torch

    if dtype is None:
        return tensors
    kind: torch.dtype = getattr(torch, dtype)
    return {name: value.to(kind) if value.is_floating_point() else value for name, value in tensors.items()}


def _both_spellings(head: Head, drafted: int, known: int) -> dict[str, "Tensor"]:
    import numpy as np
    import torch

    if head.d2t is not None:
        tokens = drafted_tokens(head.d2t)
    elif head.t2d is not None:
        tokens = np.flatnonzero(head.t2d)
    else:
        raise MmspecError(f"{head}: it says {drafted} of {known} tokens, and neither d2t nor t2d names them")
    if len(tokens) != drafted:
        raise MmspecError(
            f"{head}: draft_vocab_size is {drafted}, and {len(tokens)} tokens are named; save it again"
        )
    return {"d2t": torch.from_numpy(offsets(tokens)), "t2d": torch.from_numpy(mask(tokens, known))}


def _completed(head: Head, tensors: dict[str, "Tensor"], target: str | None) -> dict[str, Any]:
    """The configuration with everything in it that vLLM reads, and that speculators' own class would write."""
    found = find_target(target) if target is not None else None
    layer_ids = head.aux_layers
    if layer_ids is None and found is not None:
        layer_ids = [2, found.layers // 2, found.layers - 3]  # vLLM's choice, said
    config = head.config | {"eagle_aux_hidden_state_layer_ids": layer_ids}
    config["speculators_config"] = _speculators_config(config, target, found)
    if "fc.weight" in tensors:
        config["dtype"] = str(tensors["fc.weight"].dtype).removeprefix("torch.")
    if head.format is HeadFormat.SINGLE_FILE:
        config = _as_speculators(head, config)
    if head.aux_states != 3:
        layer = config["transformer_layer_config"]
        config["transformer_layer_config"] = layer | {"num_aux_hidden_states": head.aux_states}
    return _settings(head).into(config)


def _speculators_config(config: dict[str, Any], target: str | None, found: Target | None) -> dict[str, Any]:
    """The part that names the target, which speculators calls the verifier."""
    named: dict[str, Any] = {**_NO_VERIFIER, **(config.get("speculators_config") or {})}
    if target is not None:
        named["verifier"] = {"name_or_path": target, "architectures": found.architectures if found else []}
    return named


def _settings(head: Head) -> HeadConfig:
    """A head from elsewhere that has M-RoPE sections was trained on 3-D ids."""
    if KEY not in head.config and head.mrope_sections:
        return head.settings.model_copy(update={"positions": "mrope"})
    return head.settings


def _as_speculators(head: Head, config: dict[str, Any]) -> dict[str, Any]:
    """The configuration as speculators' class writes it, defaults included."""
    if (kind := head.layer["model_type"]) not in ("llama", "qwen3"):
        raise MmspecError(f"{head}: layers of type {kind}; speculators has llama and qwen3")
    try:
        from speculators.models.eagle3 import Eagle3SpeculatorConfig
    except ImportError:
        raise MmspecError(
            f"{head}: older kinds are converted with speculators, which is not installed; pip install 'mmspec[train]'"
        ) from None
    try:
        written = json.loads(Eagle3SpeculatorConfig.from_dict(config).to_json_string())
    except (ValueError, TypeError) as error:
        raise MmspecError(f"{head}: config.json: {str(error).splitlines()[0]}") from None
    written["transformer_layer_config"] = {
        **config["transformer_layer_config"],
        **written["transformer_layer_config"],
    }
    return dict(written)
