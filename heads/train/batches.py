"""From captured samples to padded batches, streamed: only the batch at hand is in memory."""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import torch

Sample = dict[str, torch.Tensor | None]


class Samples(Protocol):
    """What training reads: `mmspec.heads.capture.CapturedDataset`, or a list in tests."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample: ...


@dataclass
class Batch:
    """Sequences side by side, padded on the right: [sequences, rows] unless said otherwise.

    Row j of a sequence is what the draft has at position j: token j + 1, the target's states at j, and what the
    target says after token j + 1.

    Attributes:
        tokens: token j + 1; `VISUAL_OFFSET + i` where it is visual and `features[i]` is its embedding.
        hidden: the auxiliary layers' states at j [sequences, rows, layers x hidden].
        target: the target's last hidden state at j + 1, before its final norm [sequences, rows, hidden].
        starts: whether drafting can start here: token j + 1 is the target's own, and another follows it.
        positions: of row j: [sequences, rows], or [3, sequences, rows] for M-RoPE.
        real: whether the row is no padding.
        features: visual tokens of all sequences [visual tokens, hidden].
        pictures: for each row the picture that is the last one to begin up to token j + 1, -1 before the first.
        owners: the picture of each of `features` [visual tokens].
        visual: whether token j + 1 is visual.
    """

    tokens: torch.Tensor
    hidden: torch.Tensor
    target: torch.Tensor
    starts: torch.Tensor
    positions: torch.Tensor
    real: torch.Tensor
    features: torch.Tensor
    pictures: torch.Tensor
    owners: torch.Tensor
    visual: torch.Tensor

    def to(self, device: torch.device) -> "Batch":
        return Batch(**{f.name: getattr(self, f.name).to(device, non_blocking=True) for f in fields(self)})


VISUAL_OFFSET = 1 << 40  # above every vocabulary


def collate(samples: Sequence[Sample], vision: bool, mrope: bool, dtype: torch.dtype) -> Batch:
    """Pads samples of the capture to one batch.

    Args:
        vision: whether visual tokens bring their features; otherwise they are placeholder tokens like any other.
        mrope: whether positions are the target's 3-D ids instead of sequence indices.
    """
    rows = max(len(_tensor(sample, "input_ids")) for sample in samples) - 1
    columns: dict[str, list[torch.Tensor]] = defaultdict(list)
    features: list[torch.Tensor] = []
    tokens_seen = pictures_seen = 0
    for sample in samples:
        ids, mask = _tensor(sample, "input_ids").clone(), _tensor(sample, "loss_mask").bool()
        visual = _tensor(sample, "is_visual").bool()
        begins = visual & ~torch.cat([visual.new_zeros(1), visual[:-1]])
        pictures = torch.where(begins.cumsum(0) > 0, pictures_seen + begins.cumsum(0) - 1, -1)
        if sample["features"] is not None:
            found = _tensor(sample, "features")
            if vision:
                ids[visual] = VISUAL_OFFSET + tokens_seen + torch.arange(len(found))
            features.append(found)
            columns["owners"].append(pictures[visual])
            tokens_seen, pictures_seen = tokens_seen + len(found), pictures_seen + int(begins.sum())
        follows = torch.cat([mask[2:], mask.new_zeros(1)])
        columns["tokens"].append(_pad(ids[1:], rows))
        columns["real"].append(_pad(torch.ones(len(ids) - 1, dtype=torch.bool), rows))
        columns["starts"].append(_pad(mask[1:] & follows, rows))
        columns["pictures"].append(_pad(pictures[1:], rows, -1))
        columns["visual"].append(_pad(visual[1:], rows))
        at = _tensor(sample, "mrope_positions" if mrope else "positions")[..., :-1]
        columns["positions"].append(_pad(at, rows))
        columns["hidden"].append(_pad(_tensor(sample, "hidden_states")[:-1].to(dtype).mT, rows).mT)
        columns["target"].append(_pad(_tensor(sample, "last_hidden")[1:].to(dtype).mT, rows).mT)
    owners = columns.pop("owners", [torch.zeros(0, dtype=torch.long)])
    width = columns["target"][0].shape[-1]
    return Batch(
        features=torch.cat(features).to(dtype) if features else torch.zeros(0, width, dtype=dtype),
        owners=torch.cat(owners),
        positions=torch.stack(columns.pop("positions"), dim=-2),
        **{name: torch.stack(column) for name, column in columns.items()},
    )


def token_batches(
    lengths: Sequence[int], most_tokens: int, seed: int, rank: int = 0, world: int = 1
) -> Iterator[list[int]]:
    """Endless lists of sample indices, each of at most `most_tokens` padded tokens, of samples of like length.

    Every epoch is shuffled anew; the same seed gives the same order, and the processes of a group get
    different batches.
    """
    epoch = 0
    while True:
        rng = random.Random(f"{seed}/{epoch}")
        order = sorted(range(len(lengths)), key=lambda i: (lengths[i] + rng.uniform(0, 16), i))
        batches = list(_cut(order, lengths, most_tokens))
        rng.shuffle(batches)
        usable = len(batches) // world * world or len(batches)
        for number in range(rank % len(batches), usable, world):
            yield batches[number]
        epoch += 1


def _cut(order: Sequence[int], lengths: Sequence[int], most_tokens: int) -> Iterator[list[int]]:
    batch: list[int] = []
    longest = 0
    for index in order:
        longest = max(longest, lengths[index])
        if batch and longest * (len(batch) + 1) > most_tokens:
            yield batch
            batch, longest = [], lengths[index]
        batch.append(index)
    if batch:
        yield batch


def _tensor(sample: Sample, name: str) -> torch.Tensor:
    value = sample[name]
    if value is None:
        raise ValueError(f"the captured sample has no {name}")
    return value


def _pad(values: torch.Tensor, length: int, value: int = 0) -> torch.Tensor:
    return torch.nn.functional.pad(values, (0, length - values.shape[-1]), value=value)
