"""What each process of torchrun does in `test_two_processes`: trains on samples from a file."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

from tests.unit.heads.train.test_trainer import make_trainer

STEPS = 3


def main(folder: Path, target: Path) -> None:
    dist.init_process_group("gloo")
    trainer, _ = make_trainer(target, torch.load(folder / "samples.pt"), steps=STEPS, batch_tokens=64)
    trainer.train(folder / "run")
    torch.save(trainer.head.state_dict(), folder / f"head-{dist.get_rank()}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
