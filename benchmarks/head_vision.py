"""What a head needs of the picture itself: simulated acceptance with the picture's rows seen and hidden.

python benchmarks/head_vision.py DATA RUN [RUN ...] [--target pocket] [--out FILE]

DATA is what `mmspec head capture` wrote, each RUN a folder of `mmspec head train` on it. Hidden rows are left out of
the head's attention, so that what it knows of the picture comes through the target's states of the text behind it.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from mmspec.bench.provenance import write_result
from mmspec.heads.capture import CapturedDataset
from mmspec.heads.train import TrainSettings
from mmspec.heads.train.batches import Batch
from mmspec.heads.train.build import new_head
from mmspec.heads.train.trainer import HeadTrainer
from mmspec.heads.train.vocabulary import draft_vocabulary
from mmspec.models import resolve_model
from mmspec.training import CHECKPOINT


class _Blind(HeadTrainer):
    """Validates with pictures' rows hidden."""

    def _collate(self, indices: list[int]) -> Batch:
        batch = super()._collate(indices)
        # A row is a visual token, or the state of one.
        behind = torch.nn.functional.pad(batch.visual[:, :-1], (1, 0))
        batch.real &= ~(batch.visual | behind)
        return batch


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--target", default="pocket")
    parser.add_argument("--out", type=Path, help="write the result with its provenance to this file")
    given = parser.parse_args()
    data, target = CapturedDataset(given.data), Path(resolve_model(given.target))
    result = {run.name: _scores(run, data, target) for run in given.runs}
    if given.out:
        write_result(given.out, result)
    print(json.dumps(result))


def _scores(run: Path, data: CapturedDataset, target: Path) -> dict[str, Any]:
    """Of one head, on the conversations that its training kept apart."""
    settings = TrainSettings.parse(json.loads((run / "settings.json").read_text()))
    answers = [data.answer(index) for index in range(len(data))]
    vocabulary = draft_vocabulary(answers, settings.draft_vocab_size, data.manifest.vocab_size)[:2]
    head = new_head(target, settings, data.manifest.aux_layer_ids, vocabulary)
    saved = torch.load(run / CHECKPOINT, weights_only=True)
    head.load_state_dict(saved["model"], strict=False)
    lengths = [data.record(index).tokens for index in range(len(data))]
    seen = HeadTrainer(head, data, lengths, settings).validate()
    hidden = _Blind(head, data, lengths, settings).validate()
    return {"vision": settings.vision, "seen": seen, "hidden": hidden}


if __name__ == "__main__":
    main()
