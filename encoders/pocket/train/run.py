"""What every stage shares: a resumable loop with a progress bar, a log and a loss plot."""

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

Metrics = dict[str, float]


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
    """One stage's folder: checkpoint, log and plot.

    Args:
        folder: where the stage keeps its files; a checkpoint found there is continued.
        model: the module whose trainable parameters the checkpoint holds.
        optimizers: each optimizer's peak learning rates are those that it is given with.
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
        if (folder / "checkpoint.pt").exists():
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
            raise FloatingPointError(f"loss is not finite at step {self.step}; the last checkpoint is kept")
        torch.nn.utils.clip_grad_norm_([p for p in self.model.parameters() if p.requires_grad], 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.step += 1
        return metrics

    def _report(self, recent: list[Metrics], scores: Metrics, seconds: float) -> None:
        means = {name: sum(m[name] for m in recent) / len(recent) for name in recent[0]}
        entry: dict[str, Any] = {"step": self.step, "seconds": round(seconds, 1), **means, **scores}
        with (self.folder / "log.jsonl").open("a") as log:
            log.write(json.dumps(entry) + "\n")
        print(json.dumps(entry), flush=True)
        plot_losses(self.folder / "log.jsonl", self.folder / "loss.png")

    def _save(self) -> None:
        state = {
            "step": self.step,
            "model": {n: p.detach() for n, p in self.model.named_parameters() if p.requires_grad},
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }
        part = self.folder / "checkpoint.part"
        torch.save(state, part)
        os.replace(part, self.folder / "checkpoint.pt")

    def _load(self) -> None:
        state = torch.load(self.folder / "checkpoint.pt", weights_only=True)
        self.model.load_state_dict(state["model"], strict=False)
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step = state["step"]


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
