"""Trains a head on captured data, and writes it where serving can load it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from speculators.models.eagle3 import Eagle3DraftModel

from mmspec.errors import MmspecError
from mmspec.heads.config import HeadConfig
from mmspec.heads.evaluate import mean_acceptance_length
from mmspec.heads.train.batches import Batch, Samples, collate, token_batches
from mmspec.heads.train.scores import (
    accepted_share,
    agreement,
    answers,
    loss_of,
    walk,
)
from mmspec.heads.train.settings import TrainSettings
from mmspec.heads.train.unroll import targets, unroll
from mmspec.training import Metrics, Run, Schedule, muon_and_adamw


class HeadTrainer:
    """One training of a head.

    Args:
        head: on the device where it is trained.
        samples: captured sequences; the last ones are kept apart for validation.
        lengths: of each sample, in tokens.
    """

    def __init__(
        self, head: Eagle3DraftModel, samples: Samples, lengths: list[int], settings: TrainSettings
    ) -> None:
        self.head, self.samples, self.settings = head, samples, settings
        kept = min(settings.validation_samples, max(1, round(len(samples) * settings.validation_share)))
        if len(samples) <= kept:
            raise MmspecError(f"{len(samples)} captured samples are too few to train on; capture more")
        self._first_kept = len(samples) - kept
        self._device = next(head.parameters()).device
        self._lengths = lengths
        self._scores: Metrics = {}  # of the last validation

    def train(self, folder: Path) -> Metrics:
        """Runs to the end, or goes on from the folder's checkpoint; returns the last validation's scores."""
        s = self.settings
        inner = ("fc.", "layers.") if s.optimizer == "muon" else ()
        optimizers = muon_and_adamw(self.head, s.rate, lambda name: name.startswith(inner))
        run = Run(folder, self.head, optimizers, Schedule(s.steps, s.warmup, s.save_every))
        self._batches = self._training_batches(run.step)
        run.train(lambda _step: self._step_loss(), self.validate)
        # The run's end validated; one that was at its end already has not.
        return self._scores or self.validate()

    def _step_loss(self) -> Metrics:
        loss_sum = rows = 0.0
        for _ in range(self.settings.accumulate):
            batch = next(self._batches)
            loss, _, _ = self._loss(batch)
            (loss / self.settings.accumulate).backward()
            loss_sum += loss.item()
            rows += batch.real.sum().item()
        return {"loss": loss_sum / self.settings.accumulate, "tokens": rows}

    @torch.no_grad()
    def validate(self) -> Metrics:
        """Loss and simulated acceptance on the samples kept apart."""
        self.head.eval()
        d2t = self.head.d2t if self.head.use_draft_vocab else None
        losses: list[float] = []
        agreed: list[torch.Tensor] = []
        accepted: list[int] = []
        for index in range(self._first_kept, len(self.samples)):
            batch = self._collate([index])
            if not batch.starts.any():
                continue
            loss, drafted, said = self._loss(batch)
            losses.append(loss.item())
            for part in answers(batch.starts):
                agreed.append(agreement(drafted[part], said[part], d2t))
                accepted += walk(agreed[-1].tolist())
        self.head.train()
        if not agreed:
            raise MmspecError("no sample kept apart for validation has an answer; capture longer answers")
        shares = accepted_share(torch.cat(agreed))
        self._scores = {
            "validation": sum(losses) / len(losses),
            "mean_acceptance_length": mean_acceptance_length(sum(accepted), len(accepted)),
            **{f"accepted_{number + 1}": share for number, share in enumerate(shares)},
        }
        return self._scores

    def _loss(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The loss, what the head drafts from each start, and what the target said there."""
        wanted, said = targets(self.head, batch)
        steps = unroll(self.head, batch, self.settings.draft_steps)
        return *loss_of(steps, wanted, self.settings.step_decay), said

    def _training_batches(self, done: int) -> Iterator[Batch]:
        """Batches from where an earlier run stopped."""
        rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        s = self.settings
        lengths = self._lengths[: self._first_kept]
        indices = token_batches(lengths, s.batch_tokens, s.seed, rank, world)
        for _ in range(done * s.accumulate):
            next(indices)
        for chosen in indices:
            yield self._collate(chosen)

    def _collate(self, indices: list[int]) -> Batch:
        s = self.settings
        samples = [self.samples[index] for index in indices]
        dtype = getattr(torch, s.dtype)
        return collate(samples, s.vision == "features", s.positions == "mrope", dtype).to(self._device)


def save_head(
    head: Eagle3DraftModel, settings: TrainSettings, folder: Path, target: str, fingerprint: str | None
) -> None:
    """Writes the head in speculators' format, without the target's embeddings: vLLM shares the target's own.

    Args:
        target: how the configuration calls it.
        fingerprint: of its weights.
    """
    part = folder.with_name(folder.name + ".part")
    head.save_pretrained(part, state_dict=_shipped_weights(head))
    path = part / "config.json"
    config = json.loads(path.read_text())
    config["speculators_config"]["verifier"]["name_or_path"] = target
    # vLLM expects three states unless it is told.
    config["transformer_layer_config"]["num_aux_hidden_states"] = len(head.target_layer_ids)
    ours = HeadConfig(
        vision=settings.vision,
        positions=settings.positions,
        summary_size=settings.summary_size if settings.vision == "global" else None,
        target_fingerprint=fingerprint,
    )
    path.write_text(json.dumps(ours.into(config), indent=2) + "\n")
    folder.mkdir(parents=True, exist_ok=True)
    for file in part.iterdir():
        os.replace(file, folder / file.name)
    part.rmdir()


def _shipped_weights(head: Eagle3DraftModel) -> dict[str, torch.Tensor]:
    left_out = ("embed_tokens.", "verifier_")
    return {
        name: weight.contiguous()
        for name, weight in head.state_dict().items()
        if not name.startswith(left_out)
    }
