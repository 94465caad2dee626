"""What every training here shares: a resumable loop with a progress bar, a log and a loss plot.

Under torchrun every process runs the same loop on its own data; gradients are averaged, and the first process writes.
"""

import json
import math
import os
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from mmspec.errors import MmspecError

Metrics = dict[str, float]
CHECKPOINT = "checkpoint.pt"


@dataclass(frozen=True)
class Schedule:
    """How long a stage runs and how often it looks up.

    Attributes:
        steps: optimizer steps in all.
        warmup: steps of linear warm-up; a cosine down to a twentieth follows.
        save_every: steps between checkpoints and validations.
    """

    steps: int
    warmup: int = 50
    save_every: int = 200

    def factor(self, step: int) -> float:
        """The share of the peak learning rate at a step."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        progress = min(1.0, (step - self.warmup) / max(1, self.steps - self.warmup))
        return 0.05 + 0.475 * (1 + math.cos(math.pi * progress))


class Run:
    """One training's folder: checkpoint, log and plot.

    Args:
        folder: where the training keeps its files; a checkpoint found there is continued.
        model: the module whose trainable parameters the checkpoint holds.
        optimizers: each optimizer's peak learning rates are those that it is given with.

    Raises:
        MmspecError: the checkpoint found in the folder is cut short or another model's.
    """

    def __init__(
        self,
        folder: Path,
        model: torch.nn.Module,
        optimizers: list[torch.optim.Optimizer],
        schedule: Schedule,
    ) -> None:
        self.folder, self.model, self.optimizers, self.schedule = folder, model, optimizers, schedule
        self._peaks = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
        self.step = 0
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / CHECKPOINT).exists():
            self._load()

    def train(self, step_loss: Callable[[int], Metrics], validate: Callable[[], Metrics]) -> None:
        """Runs to the schedule's end. `step_loss(step)` runs backward and returns what to log."""
        torch.manual_seed(self.step)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        with Progress(*columns) as progress:
            bar = progress.add_task(self.folder.name, total=self.schedule.steps, completed=self.step)
            started = time.monotonic()
            recent: list[Metrics] = []
            while self.step < self.schedule.steps:
                recent.append(self._one_step(step_loss))
                progress.update(bar, completed=self.step, description=_line(self.folder.name, recent[-1]))
                if self.step % self.schedule.save_every == 0 or self.step == self.schedule.steps:
                    self._report(recent, validate(), time.monotonic() - started)
                    recent = []
                    self._save()

    def _one_step(self, step_loss: Callable[[int], Metrics]) -> Metrics:
        for optimizer, peaks in zip(self.optimizers, self._peaks, strict=True):
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * self.schedule.factor(self.step)
            optimizer.zero_grad(set_to_none=True)
        metrics = step_loss(self.step)
        if not math.isfinite(metrics["loss"]):
            raise MmspecError(
                f"the loss is not finite at step {self.step}: training stops, {self.folder / CHECKPOINT} is kept; "
                "go on from there with a lower learning rate"
            )
        average_gradients(self.model)
        torch.nn.utils.clip_grad_norm_([p for p in self.model.parameters() if p.requires_grad], 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.step += 1
        return metrics

    def _report(self, recent: list[Metrics], scores: Metrics, seconds: float) -> None:
        means = {name: sum(m[name] for m in recent) / len(recent) for name in recent[0]}
        entry: dict[str, Any] = {"step": self.step, "seconds": round(seconds, 1), **means, **scores}
        if not is_first_process():
            return
        with (self.folder / "log.jsonl").open("a") as log:
            log.write(json.dumps(entry) + "\n")
        print(json.dumps(entry), flush=True)
        plot_losses(self.folder / "log.jsonl", self.folder / "loss.png")

    def _save(self) -> None:
        if not is_first_process():
            return
        state = {
            "step": self.step,
            "model": {n: p.detach() for n, p in self.model.named_parameters() if p.requires_grad},
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }
        part = self.folder / "checkpoint.part"
        torch.save(state, part)
        os.replace(part, self.folder / CHECKPOINT)

    def _load(self) -> None:
        path = self.folder / CHECKPOINT
        try:
            state = torch.load(path, weights_only=True)
            self.model.load_state_dict(state["model"], strict=False)
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
        except (RuntimeError, ValueError, KeyError, EOFError, pickle.UnpicklingError) as error:
            reason = str(error).splitlines()[0]
            raise MmspecError(
                f"{path} cannot be continued ({reason}); delete it, or give another folder"
            ) from error
        self.step = state["step"]


def is_first_process() -> bool:
    """Whether this process writes files: the only one, or the first of several."""
    return not dist.is_initialized() or dist.get_rank() == 0


def average_gradients(model: torch.nn.Module) -> None:
    """Gives every process the mean of all processes' gradients; a parameter that one did not use counts as zero."""
    if not dist.is_initialized():
        return
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
        parameter.grad /= dist.get_world_size()


def plot_losses(log: Path, target: Path) -> None:
    """Draws every figure of a log over its steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    entries = [json.loads(line) for line in log.read_text().splitlines()]
    names = [name for name in entries[-1] if name not in ("step", "seconds")]
    figure, axes = pyplot.subplots(1, len(names), figsize=(4 * len(names), 3), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        axis.plot([e["step"] for e in entries], [e.get(name) for e in entries])
        axis.set_title(name)
    figure.tight_layout()
    figure.savefig(target)
    pyplot.close(figure)


def _line(name: str, metrics: Metrics) -> str:
    return f"{name} " + " ".join(f"{key} {value:.3f}" for key, value in metrics.items())
