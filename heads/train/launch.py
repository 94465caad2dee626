"""One call from captured data to a head on disk; also what each process of torchrun runs."""

import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from speculators.models.eagle3 import Eagle3DraftModel

from mmspec.errors import MmspecError
from mmspec.heads.capture import CapturedDataset
from mmspec.heads.train.build import new_head, text_config
from mmspec.heads.train.settings import TrainSettings
from mmspec.heads.train.trainer import HeadTrainer, save_head
from mmspec.heads.train.vocabulary import draft_vocabulary
from mmspec.training import Metrics, is_first_process

_SETTINGS = "settings.json"


def train_head(
    data: Path, target: Path, folder: Path, settings: TrainSettings, target_name: str | None = None
) -> Metrics:
    """Trains a head on `data`, or goes on where `folder` stopped, and writes it to `folder / "head"`.

    Args:
        data: a folder that `mmspec head capture` wrote.
        target: the target's checkpoint folder.
        target_name: how the head's configuration calls the target; the folder if not given.
        folder: checkpoint, log, plot and the head go here.

    Returns:
        Scores on the samples kept apart, among them `mean_acceptance_length`.

    Raises:
        MmspecError: data or checkpoint that do not fit, too little data, a loss that is not finite.
    """
    device = _join_group()
    dataset = CapturedDataset(data)
    keep_settings(folder, settings)
    vocabulary = _vocabulary(dataset, target, settings, folder)
    head = new_head(target, settings, dataset.manifest.aux_layer_ids, vocabulary)
    lengths = [dataset.record(index).tokens for index in range(len(dataset))]
    trainer = HeadTrainer(placed(head, device, getattr(torch, settings.dtype)), dataset, lengths, settings)
    try:
        scores = trainer.train(folder)
        if is_first_process():
            save_head(
                head, settings, folder / "head", target_name or str(target), dataset.manifest.fingerprint
            )
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return scores


def placed(head: Eagle3DraftModel, device: torch.device, dtype: torch.dtype) -> Eagle3DraftModel:
    """The head on a device and in a dtype, but for the rotary frequencies: serving computes them in float32."""
    frequencies = head.rotary_emb.inv_freq.float()
    head = head.to(device, dtype)
    head.rotary_emb.inv_freq = frequencies.to(device)
    return head


def keep_settings(folder: Path, settings: TrainSettings) -> None:
    """Writes the settings beside the checkpoint; those that an earlier run began with must agree in all but length.

    Raises:
        MmspecError: they differ.
    """
    path = folder / _SETTINGS
    given = settings.model_dump()
    if path.exists():
        kept = json.loads(path.read_text())
        free = ("steps", "save_every", "rate")
        differing = [name for name in given if name not in free and kept.get(name) != given[name]]
        if differing:
            raise MmspecError(
                f"{folder} was begun with other settings ({', '.join(differing)}); give those, or another folder"
            )
    if is_first_process():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(given, indent=2) + "\n")


def _vocabulary(
    dataset: CapturedDataset, target: Path, settings: TrainSettings, folder: Path
) -> tuple[torch.Tensor, torch.Tensor]:
    answers = (dataset.answer(index) for index in range(len(dataset)))
    d2t, t2d, covered = draft_vocabulary(answers, settings.draft_vocab_size, text_config(target).vocab_size)
    if is_first_process():
        note = {"draft_vocab_size": settings.draft_vocab_size, "answer_tokens_covered": covered}
        (folder / "vocabulary.json").write_text(json.dumps(note) + "\n")
    return d2t, t2d


def _join_group() -> torch.device:
    """Joins torchrun's group where there is one; this process's device."""
    local = int(os.environ.get("LOCAL_RANK", 0))
    cuda = torch.cuda.is_available()
    if int(os.environ.get("WORLD_SIZE", 1)) > 1 and not dist.is_initialized():
        dist.init_process_group("nccl" if cuda else "gloo")
    if cuda:
        torch.cuda.set_device(local)
    return torch.device("cuda", local) if cuda else torch.device("cpu")
