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
from mmspec.heads.train.batches import Batch, Samples, collate, token_batches
from mmspec.heads.train.scores import (
    acceptance_length,
    accepted_share,
    agreement,
    answers,
    loss_of,
    walk,
)
from mmspec.heads.train.settings import TrainSettings
from mmspec.heads.train.unroll import targets, unroll
from mmspec.training import Metrics, Muon, Run, Schedule


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

    def train(self, folder: Path) -> Metrics:
        """Runs to the end, or goes on from the folder's checkpoint; returns the last validation's scores."""
        s = self.settings
        run = Run(folder, self.head, optimizers_for(self.head, s), Schedule(s.steps, s.warmup, s.save_every))
        self._batches = self._training_batches(run.step)
        run.train(lambda _step: self._step_loss(), self.validate)
        return self.validate()

    def _step_loss(self) -> Metrics:
        loss_sum = rows = 0.0
        for _ in range(self.settings.accumulate):
            batch = next(self._batches)
            loss, _ = self._loss(batch)
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
            loss, drafted = self._loss(batch)
            _, said = targets(self.head, batch)
            losses.append(loss.item())
            for part in answers(batch.starts):
                agreed.append(agreement(drafted[part], said[part], d2t))
                accepted += walk(agreed[-1].tolist())
        self.head.train()
        if not agreed:
            raise MmspecError("no sample kept apart for validation has an answer; capture longer answers")
        shares = accepted_share(torch.cat(agreed))
        return {
            "validation": sum(losses) / len(losses),
            "mean_acceptance_length": acceptance_length(accepted),
            **{f"accepted_{number + 1}": share for number, share in enumerate(shares)},
        }

    def _loss(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        wanted, _ = targets(self.head, batch)
        return loss_of(unroll(self.head, batch, self.settings.draft_steps), wanted, self.settings.step_decay)

    def _training_batches(self, done: int) -> Iterator[Batch]:
        """Batches from where an earlier run stopped; those without a start are passed over."""
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


def optimizers_for(head: Eagle3DraftModel, settings: TrainSettings) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices where it is wanted, AdamW for the rest."""
    trained = {name: p for name, p in head.named_parameters() if p.requires_grad}
    inner = [
        p
        for name, p in trained.items()
        if settings.optimizer == "muon" and p.ndim == 2 and name.startswith(("fc.", "layers."))
    ]
    chosen = {id(p) for p in inner}
    rest = [p for p in trained.values() if id(p) not in chosen]
    adamw = torch.optim.AdamW(rest, lr=settings.rate, betas=(0.9, 0.95), weight_decay=0.0)
    return [Muon(inner, lr=settings.rate), adamw] if inner else [adamw]


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
