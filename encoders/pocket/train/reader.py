"""Stages 2 and 3: the language model learns to read the tower's tokens (reader), then both train together (join).

In both the language model is adapted by LoRA, and every few steps it is held to its own words.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import load_file

from mmspec.encoders.pocket.assemble import LORA, TOWER
from mmspec.encoders.pocket.train.adapted import PocketReader
from mmspec.encoders.pocket.train.teacher import Teacher
from mmspec.encoders.pocket.train.tower import sharpen
from mmspec.encoders.pocket.train.weights import unsplit
from mmspec.training import Muon, Run, Schedule


def train(
    folder: Path, schedule: Schedule, stage: str, pictures: int, rate: float, tower_rate: float
) -> None:
    """Trains a stage, or goes on where an earlier run stopped; each starts from those before it."""
    torch.manual_seed(0)
    with_tower = stage == "join"
    model = PocketReader(with_tower)
    _start(model, folder.parent, ("tower", "reader") if with_tower else ("tower",))
    run = Run(folder, model, _optimizers(model, rate, tower_rate), schedule)
    teacher = Teacher(model, with_tower, pictures, folder)
    run.train(teacher.step_loss, teacher.validate)


def _optimizers(model: PocketReader, rate: float, tower_rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the adapters' factors, AdamW for the probes and, in `join`, the tower."""
    factors = [p for n, p in model.named_parameters() if p.requires_grad and ".lora_" in n]
    groups = [
        {"params": model.probes(), "lr": rate},
        {"params": [p for p in model.tower.parameters() if p.requires_grad], "lr": tower_rate},
    ]
    adamw = torch.optim.AdamW(
        [group for group in groups if group["params"]], betas=(0.9, 0.99), weight_decay=0.0
    )
    return [Muon(factors, lr=rate), adamw]


def _start(model: PocketReader, folder: Path, stages: tuple[str, ...]) -> None:
    """Loads what earlier stages left; `join` without them goes on from the shipped weights."""
    checkpoints = [folder / stage / "checkpoint.pt" for stage in stages]
    if len(stages) == 2 and not any(path.exists() for path in checkpoints):
        model.load_state_dict(unsplit(load_file(TOWER), load_file(LORA)), strict=False)
        return
    for stage, path in zip(stages, checkpoints, strict=True):
        saved = torch.load(path, weights_only=True)["model"]
        named = {f"tower.{name}" if stage == "tower" else name: weight for name, weight in saved.items()}
        model.load_state_dict(named, strict=False)
    if stages == ("tower",):
        sharpen(model.tower)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", choices=("reader", "join"), required=True)
    parser.add_argument("--folder", type=Path, default=Path("runs/pocket"))
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--pictures", type=int, default=2, help="pictures a step")
    parser.add_argument("--rate", type=float, default=1e-3, help="peak learning rate of the adapters")
    parser.add_argument(
        "--tower-rate", type=float, default=1e-4, help="peak learning rate of the tower in join"
    )
    parser.add_argument("--save-every", type=int, default=50, help="steps")
    given = parser.parse_args()
    plan = Schedule(given.steps, warmup=20, save_every=given.save_every)
    train(given.folder / given.stage, plan, given.stage, given.pictures, given.rate, given.tower_rate)
