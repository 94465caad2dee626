"""A head from disk as speculators' model, ready to draft for a target or to be trained on."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig

from mmspec.errors import MmspecError
from mmspec.heads.config import HeadConfig, without_settings
from mmspec.heads.vision import ImageSummary


def load_head(folder: Path, target: Path, attention: str = "sdpa") -> tuple[Eagle3DraftModel, HeadConfig]:
    """The head, with what it shares with its target taken from there, and how it was trained.

    Args:
        folder: of a head in speculators' format.
        target: the target's checkpoint folder, whatever the head's configuration calls it.

    Raises:
        MmspecError: weights that do not fit the configuration.
    """
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    ours = HeadConfig.of(config, f"head {folder}")
    config = without_settings(config)
    config["speculators_config"]["verifier"]["name_or_path"] = str(target)
    parsed = Eagle3SpeculatorConfig.from_dict(config)
    parsed.transformer_layer_config._attn_implementation = attention
    head = Eagle3DraftModel(parsed)
    weights = load_file(folder / "model.safetensors")
    if ours.vision == "global":
        head.vision = ImageSummary(head.hidden_size, weights["vision.up.weight"].shape[0])
    try:
        missing, unexpected = head.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        raise MmspecError(
            f"head {folder}: {str(error).splitlines()[-1].strip()}; train or export it again"
        ) from None
    lost = [name for name in missing if not name.startswith(("embed_tokens.", "verifier_", "rotary_emb."))]
    if lost or unexpected:
        what = f"no {lost[0]}" if lost else f"an unknown {unexpected[0]}"
        raise MmspecError(f"head {folder}: model.safetensors has {what}; train or export it again")
    head.load_verifier_weights()
    return head.eval(), ours
