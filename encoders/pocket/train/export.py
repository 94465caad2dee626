"""From a `join` checkpoint to the two files that are shipped."""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file

from mmspec.encoders.pocket.assemble import LORA, TOWER
from mmspec.encoders.pocket.train.weights import split

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=Path("runs/pocket/join/checkpoint.pt"))
    given = parser.parse_args()
    tower, lora = split(torch.load(given.checkpoint, weights_only=True)["model"])
    for weights, path in ((tower, TOWER), (lora, LORA)):
        save_file(weights, path)
        path.chmod(0o644)
