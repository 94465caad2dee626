"""Random samples in the form of the capture."""

import torch

from gpu_check.run import Size
from mmspec.heads.train.batches import Sample


def make_sample(size: Size, length: int, answer: range, visual: range = range(0)) -> Sample:
    """A sequence whose answer and visual tokens are at the given indices."""
    where = torch.arange(length)
    return {
        "input_ids": torch.randint(size.vocabulary, (length,)),
        "loss_mask": (where >= answer.start) & (where < answer.stop),
        "positions": where,
        "mrope_positions": where.expand(3, -1),
        "hidden_states": torch.randn(length, size.fused_layers * size.hidden),
        "last_hidden": torch.randn(length, size.hidden),
        "features": torch.randn(len(visual), size.hidden) if visual else None,
        "is_visual": (where >= visual.start) & (where < visual.stop),
    }
