"""Two processes under torchrun train the head that one process trains with two batches a step."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import Checkpoints
from tests.unit.heads.train.test_trainer import greedy_samples, make_trainer
from tests.unit.heads.train.two_processes import STEPS


@pytest.mark.slow
def test_two_processes_train_what_one_does_with_two_batches_a_step(tiny: Checkpoints, tmp_path: Path) -> None:
    target = tiny["qwen2_5_vl"]
    samples = greedy_samples(target, 24)
    torch.save(samples, tmp_path / "samples.pt")
    alone, _ = make_trainer(target, samples, steps=STEPS, batch_tokens=64, accumulate=2)
    alone.train(tmp_path / "alone")

    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = ["-m", "tests.unit.heads.train.two_processes", str(tmp_path), str(target)]
    done = subprocess.run(
        [*torchrun, *script], cwd=Path(__file__).parents[4], capture_output=True, text=True, timeout=600
    )

    assert done.returncode == 0, done.stderr[-3000:]
    for rank in range(2):
        together = torch.load(tmp_path / f"head-{rank}.pt")
        for name, weight in alone.head.state_dict().items():
            torch.testing.assert_close(together[name], weight, rtol=1e-3, atol=1e-5)
    assert len((tmp_path / "run" / "log.jsonl").read_text().splitlines()) == 1
