"""From a `join` checkpoint to the two files that are shipped."""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file

from mmspec.encoders.pocket.assemble import LORA, TOWER
from mmspec.encoders.pocket.train.reader import LORA_ALPHA, LORA_RANK


def split(parameters: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Tower and LoRA delta in float16; the LoRA scale goes into B."""
    tower = {
        name.removeprefix("tower.visual."): weight.half().contiguous()
        for name, weight in parameters.items()
        if name.startswith("tower.visual.")
    }
    lora: dict[str, torch.Tensor] = {}
    for name, weight in parameters.items():
        module = name.removeprefix("text.")
        if ".lora_A." in name:
            lora[module.split(".lora_A.")[0] + ".A"] = weight.half().contiguous()
        elif ".lora_B." in name:
            lora[module.split(".lora_B.")[0] + ".B"] = (weight * (LORA_ALPHA / LORA_RANK)).half().contiguous()
    return tower, lora


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=Path("runs/pocket/join/checkpoint.pt"))
    given = parser.parse_args()
    tower, lora = split(torch.load(given.checkpoint, weights_only=True)["model"])
    save_file(tower, TOWER)
    save_file(lora, LORA)
