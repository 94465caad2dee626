"""Training-time test: the head drafts several tokens in training as it will in serving.

At the first step every row has the target's states; at each further step the rows from which drafting can start go
on with the head's own state and the next token. A row sees the sequence before it as of the first step, and its own
earlier steps. Source: Li et al., "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via
Training-Time Test", 2025, section 3.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from transformers import DynamicCache

from mmspec.heads.train.batches import VISUAL_OFFSET, Batch
from mmspec.heads.vision import ImageSummary


class Head(Protocol):
    """The parts of a head that a step takes: those of speculators' `Eagle3DraftModel`, by its names."""

    config: Any
    embed_tokens: nn.Embedding
    input_norm: nn.Module | None
    fc_norm: nn.ModuleList | None
    fc: nn.Linear
    layers: nn.ModuleList
    rotary_emb: nn.Module
    norm: nn.Module
    lm_head: nn.Linear
    verifier_norm: nn.Module
    verifier_lm_head: nn.Linear


@dataclass
class Step:
    """What the head says at one step.

    Attributes:
        logits: over the draft vocabulary [starts, draft vocabulary].
        wanted: for each start the index of the start whose first step has the same target, -1 where the answer ends
            before.
    """

    logits: torch.Tensor
    wanted: torch.Tensor


@dataclass
class Rows:
    """The rows from which drafting can start, flat and padded to [sequences, most starts]."""

    padded: torch.Tensor  # row numbers
    real: torch.Tensor  # bool, as padded

    @classmethod
    def of(cls, starts: torch.Tensor) -> "Rows":
        most = max(1, int(starts.sum(-1).max()))
        padded = starts.byte().argsort(dim=-1, descending=True, stable=True)[:, :most]
        return cls(padded, starts.gather(1, padded))

    def wanted(self, step: int) -> torch.Tensor:
        """For each real start the flat index of the one `step` rows behind it, or -1."""
        flat = torch.full(self.padded.shape, -1, device=self.padded.device)
        flat[self.real] = torch.arange(int(self.real.sum()), device=flat.device)
        if step:
            behind = torch.full_like(flat, -1)
            behind[:, :-step] = flat[:, step:]
            there = torch.full_like(self.padded, -1)
            there[:, :-step] = self.padded[:, step:]
            flat = torch.where(there == self.padded + step, behind, -1)
        return flat[self.real]


def unroll(head: Head, batch: Batch, steps: int) -> Iterator[Step]:
    """The head's steps on a batch, one after the other."""
    rows = Rows.of(batch.starts)
    cache = DynamicCache()
    mask = causal_mask(batch.real, batch.hidden.dtype)
    hidden = _fused(head, batch.hidden)
    hidden = _layers(
        head,
        embed(head, batch.tokens, batch, batch.pictures.masked_fill(batch.visual, -1)),
        hidden,
        batch.positions,
        mask,
        cache,
    )
    index = rows.padded.unsqueeze(-1).expand(-1, -1, hidden.shape[-1])
    hidden = hidden.gather(1, index)
    yield _step(head, hidden, rows, 0)
    hidden = _fed_back(head, hidden)
    positions = _at(batch.positions, rows.padded)
    pictures = batch.pictures.gather(1, rows.padded)  # answers hold none, so further steps see the same
    mask = mask.expand(len(mask), 1, -1, -1).gather(
        2, rows.padded[:, None, :, None].expand(-1, 1, -1, mask.shape[-1])
    )
    own = _diagonal(rows.padded.shape[1], mask)
    for step in range(1, steps):
        tokens = batch.tokens.gather(1, (rows.padded + step).clamp(max=batch.tokens.shape[1] - 1))
        mask = torch.cat([mask, own.expand(len(mask), -1, -1, -1)], dim=-1)
        hidden = _layers(head, embed(head, tokens, batch, pictures), hidden, positions + step, mask, cache)
        yield _step(head, hidden, rows, step)
        hidden = _fed_back(head, hidden)


@torch.no_grad()
def targets(head: Head, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """What the target thinks and says behind each start.

    Returns:
        Its logits over the draft vocabulary [starts, draft vocabulary] and the token that it said [starts].
    """
    sequence, row = _flat_starts(batch)
    logits = head.verifier_lm_head(head.verifier_norm(batch.target[sequence, row]))
    return logits, batch.tokens[sequence, row + 1]


def embed(head: Head, tokens: torch.Tensor, batch: Batch, pictures: torch.Tensor) -> torch.Tensor:
    """Embeddings of tokens; a visual one's is its feature, and behind pictures a `global` head adds their summary.

    Args:
        tokens: as in the batch [sequences, rows].
        pictures: whose summary is added to each, -1 for none [sequences, rows].
    """
    visual = tokens >= VISUAL_OFFSET
    embeddings = head.embed_tokens(tokens.masked_fill(visual, 0))
    if not len(batch.features):
        return embeddings
    found = batch.features[(tokens - VISUAL_OFFSET).clamp(min=0)]
    embeddings = torch.where(visual.unsqueeze(-1), found, embeddings)
    summary: ImageSummary | None = getattr(head, "vision", None)
    return embeddings if summary is None else embeddings + _summaries(summary, batch, pictures)


def _summaries(summary: ImageSummary, batch: Batch, pictures: torch.Tensor) -> torch.Tensor:
    """What each row's picture adds to it [sequences, rows, hidden]."""
    weights, weighted = summary.weigh(batch.features)
    count = int(batch.owners.max()) + 2  # the last one stands for none
    weight, total = (
        part.new_zeros(count, part.shape[-1]).index_add(0, batch.owners, part) for part in (weights, weighted)
    )
    return summary.read(weight, total, batch.features.dtype)[pictures]


def causal_mask(real: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Additive [sequences, 1, rows, rows]: each row sees itself and the real rows before it."""
    rows = real.shape[1]
    seen = torch.ones(rows, rows, dtype=torch.bool, device=real.device).tril() & real[:, None, :]
    seen |= torch.eye(rows, dtype=torch.bool, device=real.device)
    return torch.zeros_like(seen, dtype=dtype).masked_fill_(~seen, float("-inf")).unsqueeze(1)


def _flat_starts(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    rows = Rows.of(batch.starts)
    sequence = torch.arange(len(rows.padded), device=rows.padded.device).unsqueeze(1).expand_as(rows.padded)
    return sequence[rows.real], rows.padded[rows.real]


def _fused(head: Head, hidden: torch.Tensor) -> torch.Tensor:
    if head.input_norm is not None:
        hidden = head.input_norm(hidden)
    if head.fc_norm is not None:
        parts = hidden.chunk(len(head.fc_norm), dim=-1)
        hidden = torch.cat([norm(part) for norm, part in zip(head.fc_norm, parts, strict=True)], dim=-1)
    return head.fc(hidden)


def _layers(
    head: Head,
    embeddings: torch.Tensor,
    hidden: torch.Tensor,
    positions: torch.Tensor,
    mask: torch.Tensor,
    cache: DynamicCache,
) -> torch.Tensor:
    hidden = torch.cat([embeddings, hidden], dim=-1)
    rotary = rotary_of(head, hidden, positions)
    for layer in head.layers:
        hidden = layer(hidden, attention_mask=mask, past_key_values=cache, position_embeddings=rotary)
    return hidden


def rotary_of(head: Head, hidden: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines; for 3-D ids each part of a head's width turns with its own axis, as in Qwen2-VL's M-RoPE."""
    if positions.dim() == 2:
        return head.rotary_emb(hidden, positions)
    sections = head.config.transformer_layer_config.rope_parameters["mrope_section"] * 2
    axes = [head.rotary_emb(hidden, axis) for axis in positions]

    def mixed(which: int) -> torch.Tensor:
        parts = [axis[which].split(sections, dim=-1) for axis in axes]
        return torch.cat([parts[i % 3][i] for i in range(len(sections))], dim=-1)

    return mixed(0), mixed(1)


def _step(head: Head, hidden: torch.Tensor, rows: Rows, step: int) -> Step:
    return Step(head.lm_head(head.norm(hidden[rows.real])), rows.wanted(step))


def _fed_back(head: Head, hidden: torch.Tensor) -> torch.Tensor:
    return head.norm(hidden) if head.config.norm_output else hidden


def _at(positions: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    if positions.dim() == 2:
        return positions.gather(1, rows)
    return positions.gather(2, rows.expand(3, -1, -1))


def _diagonal(rows: int, like: torch.Tensor) -> torch.Tensor:
    own = torch.full((rows, rows), float("-inf"), dtype=like.dtype, device=like.device)
    return own.fill_diagonal_(0.0)[None, None]
