"""Finds the summary of the picture before each row of a batch, whichever step prefilled the picture.

Each block of the draft's KV cache remembers which picture was the last to begin up to its end. That lives and dies
with the block: a request that shares blocks by prefix caching finds the pictures of those who prefilled them, since
equal blocks mean equal pictures. Everything stays on the device and nothing waits for it.
"""

from dataclasses import dataclass

import torch

from mmspec.heads.vision import ImageSummary


@dataclass(frozen=True)
class BatchRows:
    """Where the rows of a batch belong.

    Attributes:
        positions: sequence index of each row [rows].
        starts: first row of each request, and behind the last [requests + 1]; rows behind are padding.
        blocks: block table [requests, blocks].
        visual: whether the row's token is visual, bool [rows].
    """

    positions: torch.Tensor
    starts: torch.Tensor
    blocks: torch.Tensor
    visual: torch.Tensor


class PictureTable(torch.nn.Module):
    """Pooled pictures, and for each block the number of the last one; not part of a checkpoint.

    Args:
        blocks: of the KV cache.
        block_size: tokens a block.
        pictures: kept at a time; the oldest give way, and text behind them then goes without.
        width: of visual tokens.
    """

    last: torch.Tensor
    open: torch.Tensor
    count: torch.Tensor
    numbers: torch.Tensor
    weight: torch.Tensor
    weighted: torch.Tensor

    def __init__(self, blocks: int, block_size: int, pictures: int, width: int, device: torch.device) -> None:
        super().__init__()
        self._block_size, self._pictures = block_size, pictures

        def buffer(name: str, *shape: int, dtype: torch.dtype) -> None:
            self.register_buffer(name, torch.zeros(shape, dtype=dtype, device=device), persistent=False)

        # The last entry of each takes what nobody is to read.
        buffer("last", blocks + 1, dtype=torch.long)  # picture up to the block's end, 0 for none
        buffer("open", blocks + 1, dtype=torch.bool)  # whether the block ends within it
        buffer("count", dtype=torch.long)  # pictures so far
        buffer("numbers", pictures + 1, dtype=torch.long)  # whose the pooled entry is
        buffer("weight", pictures + 1, 1, dtype=torch.float32)
        buffer("weighted", pictures + 1, width, dtype=torch.float32)

    def added(
        self, summary: ImageSummary, rows: BatchRows, features: torch.Tensor | None, dtype: torch.dtype
    ) -> torch.Tensor:
        """What each row's picture adds to its embedding [rows, width]; takes in the pictures of this batch.

        Args:
            features: of the visual rows in order [visual rows, width], or None where there are none.
        """
        row = torch.arange(len(rows.positions), device=rows.positions.device)
        requests = len(rows.starts) - 1
        request = torch.searchsorted(rows.starts[1:].contiguous(), row, right=True).clamp(max=requests - 1)
        first = rows.starts.long()[request]
        real = row < rows.starts[-1]
        visual = rows.visual & real
        number = self._number(rows, request, first, row, visual)
        place = torch.where(number > 0, number % self._pictures, self._pictures)
        if features is not None:
            self._pool(summary, features, visual, place)
        known = (number > 0) & (self.numbers[place] == number) & ~visual
        self._remember(rows, request, row, real, number, visual)
        added = summary.read(self.weight[place], self.weighted[place], dtype)
        return torch.where(known.unsqueeze(-1), added, torch.zeros_like(added))

    def _number(
        self,
        rows: BatchRows,
        request: torch.Tensor,
        first: torch.Tensor,
        row: torch.Tensor,
        visual: torch.Tensor,
    ) -> torch.Tensor:
        """The last picture to begin up to each row, counted from 1; what the block before knows where none does."""
        begin = rows.positions[first]
        before = self._block(rows, request, (begin - 1).clamp(min=0))
        carried = torch.where(begin > 0, self.last[before], 0)
        within = torch.where(begin > 0, self.open[before], False)
        previous = torch.where(row > first, visual.roll(1), within)
        begins = visual & ~previous
        found = begins.cumsum(0)
        here = found - (found - begins.long())[first]
        number = torch.where(here > 0, self.count + found, carried)
        new = torch.where(begins, number % self._pictures, self._pictures)
        self.numbers[new] = torch.where(begins, number, 0)
        self.weight[new] = 0.0
        self.weighted[new] = 0.0
        self.count += found[-1]
        return number

    def _pool(
        self, summary: ImageSummary, features: torch.Tensor, visual: torch.Tensor, place: torch.Tensor
    ) -> None:
        weights, weighted = summary.weigh(features)
        feature = (visual.cumsum(0) - 1).clamp(min=0)
        target = torch.where(visual, place, self._pictures)
        self.weight.index_add_(0, target, weights[feature])
        self.weighted.index_add_(0, target, weighted[feature])

    def _remember(
        self,
        rows: BatchRows,
        request: torch.Tensor,
        row: torch.Tensor,
        real: torch.Tensor,
        number: torch.Tensor,
        visual: torch.Tensor,
    ) -> None:
        """Each block learns of its last row."""
        ends = (row + 1 == rows.starts.long()[request + 1]) | ((rows.positions + 1) % self._block_size == 0)
        block = torch.where(ends & real, self._block(rows, request, rows.positions), len(self.last) - 1)
        self.last[block] = number
        self.open[block] = visual

    def _block(self, rows: BatchRows, request: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        column = (position // self._block_size).clamp(max=rows.blocks.shape[1] - 1)
        return rows.blocks[request, column].long().clamp(0, len(self.last) - 1)
