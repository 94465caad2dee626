"""The oracle: an EAGLE-3 head in float64, written from its equations, sharing no code with the head that it checks.

Source: Li et al., "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test", 2025.
"""

from collections.abc import Iterator, Mapping

import torch

from gpu_check.run import Size
from mmspec.heads.train.batches import Sample

# Keys and values of the rows so far, [rows, key-value heads, head size].
Past = tuple[torch.Tensor, torch.Tensor]


class Reference:
    """A head by its weights, which get gradients, one sequence and one draft at a time.

    Args:
        weights: of a head, by speculators' names.
        dtype: of the head; inputs are rounded to it first, so that only arithmetic differs.
    """

    def __init__(self, weights: Mapping[str, torch.Tensor], size: Size, dtype: torch.dtype) -> None:
        self.size, self.dtype = size, dtype
        self.table, self.d2t = weights["embed_tokens.weight"], weights["d2t"]
        wide = {
            name: w.detach().double()
            for name, w in weights.items()
            if name not in ("embed_tokens.weight", "d2t")
        }
        self.weights = {name: w.requires_grad_(not name.startswith("verifier_")) for name, w in wide.items()}

    def training(
        self, samples: list[Sample], steps: int, decay: float
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Training-time test: the loss, and each step's logits [starts whose answer goes on, draft vocabulary]."""
        logits: list[list[torch.Tensor]] = [[] for _ in range(steps)]
        divergences: list[list[torch.Tensor]] = [[] for _ in range(steps)]
        for sample in samples:
            for step, row, said in self._unrolled(sample, steps):
                wanted = self._target(sample, row + 1).log_softmax(-1)
                divergences[step].append((wanted.exp() * (wanted - said.log_softmax(-1))).sum())
                logits[step].append(said)
        loss = sum(
            (decay**step * torch.stack(found).mean() for step, found in enumerate(divergences) if found),
            start=torch.zeros((), device=self.weights["fc.weight"].device),
        )
        return loss, [torch.stack(found) for found in logits if found]

    @torch.no_grad()
    def drafted(self, sample: Sample, rows: int, steps: int) -> tuple[torch.Tensor, list[int]]:
        """A draft behind the first rows, greedy: each step's logits [steps, draft vocabulary], and its tokens."""
        hidden, past = self._first(sample, rows)
        logits, tokens = [self._logits(hidden[-1])], list[int]()
        while True:
            best = logits[-1].argmax()
            tokens.append(int(best + self.d2t[best]))
            if len(logits) == steps:
                return torch.stack(logits), tokens
            embedding = self._word(torch.tensor(tokens[-1:]))
            hidden, past = self._layer(embedding, hidden[-1:], rows - 1 + len(tokens), past)
            logits.append(self._logits(hidden[-1]))

    def _unrolled(self, sample: Sample, steps: int) -> Iterator[tuple[int, int, torch.Tensor]]:
        """Step, row and logits of every start as far as its answer goes."""
        mask = _of(sample, "loss_mask").tolist()
        starts = {row for row in range(len(mask) - 2) if mask[row + 1] and mask[row + 2]}
        embeddings = self._embeddings(sample)
        first, (keys, values) = self._first(sample, len(mask) - 1)
        for start in sorted(starts):
            hidden, past = first[start : start + 1], (keys[: start + 1], values[: start + 1])
            for row in range(start, start + steps):
                if row not in starts:
                    break
                if row > start:
                    hidden, past = self._layer(embeddings[row : row + 1], hidden, row, past)
                yield row - start, row, self._logits(hidden[0])

    def _first(self, sample: Sample, rows: int) -> tuple[torch.Tensor, Past]:
        """The first step of the first rows, on the target's states."""
        states = self._rounded(_of(sample, "hidden_states")[:rows])
        empty = states.new_zeros(0, self.size.kv_heads, self.size.head_size)
        fused = states @ self.weights["fc.weight"].T
        return self._layer(self._embeddings(sample)[:rows], fused, 0, (empty, empty))

    def _layer(
        self, embeddings: torch.Tensor, hidden: torch.Tensor, position: int, past: Past
    ) -> tuple[torch.Tensor, Past]:
        """Rows that begin at a position, each of which sees the past and the rows up to itself."""
        normed = self._norm("layers.0.hidden_norm", hidden)
        both = torch.cat([self._norm("layers.0.input_layernorm", embeddings), normed], dim=-1)
        query, key, value = (self._heads(f"layers.0.self_attn.{name}_proj", both) for name in "qkv")
        query, key = self._turned(query, position), self._turned(key, position)
        keys, values = torch.cat([past[0], key]), torch.cat([past[1], value])
        shared = self.size.heads // self.size.kv_heads
        scores = torch.einsum("rhd,khd->hrk", query, keys.repeat_interleave(shared, 1))
        unseen = torch.ones_like(scores[0], dtype=torch.bool).triu(len(past[0]) + 1)
        scores = (scores / self.size.head_size**0.5).masked_fill(unseen, float("-inf"))
        seen = torch.einsum("hrk,khd->rhd", scores.softmax(-1), values.repeat_interleave(shared, 1))
        hidden = normed + self._linear("layers.0.self_attn.o_proj", seen.flatten(1))
        normed = self._norm("layers.0.post_attention_layernorm", hidden)
        gate, up = (self._linear(f"layers.0.mlp.{name}_proj", normed) for name in ("gate", "up"))
        return hidden + self._linear("layers.0.mlp.down_proj", gate * gate.sigmoid() * up), (keys, values)

    def _turned(self, heads: torch.Tensor, position: int) -> torch.Tensor:
        """Rotary embedding: the pair (i, i + half) turns by position / theta^(i / half)."""
        half = self.size.head_size // 2
        pair = torch.arange(half, device=heads.device, dtype=heads.dtype)
        at = position + torch.arange(len(heads), device=heads.device, dtype=heads.dtype)
        angle = at[:, None, None] / self.size.rope_theta ** (pair / half)
        a, b = heads[..., :half], heads[..., half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=-1)

    def _heads(self, name: str, rows: torch.Tensor) -> torch.Tensor:
        return self._linear(name, rows).unflatten(-1, (-1, self.size.head_size))

    def _linear(self, name: str, rows: torch.Tensor) -> torch.Tensor:
        return rows @ self.weights[f"{name}.weight"].T

    def _norm(self, name: str, rows: torch.Tensor) -> torch.Tensor:
        scale = (rows.square().mean(-1, keepdim=True) + self.size.norm_eps).sqrt()
        return self.weights[f"{name}.weight"] * rows / scale

    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._linear("lm_head", self._norm("norm", hidden))

    def _target(self, sample: Sample, token: int) -> torch.Tensor:
        hidden = self._rounded(_of(sample, "last_hidden")[token])
        return self._linear("verifier_lm_head", self._norm("verifier_norm", hidden))

    def _embeddings(self, sample: Sample) -> torch.Tensor:
        """What each row has of its token, the one behind its position."""
        embeddings = self._word(_of(sample, "input_ids"))
        if sample["features"] is not None:
            embeddings[_of(sample, "is_visual")] = self._rounded(sample["features"])
        return embeddings[1:]

    def _word(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.table[tokens.to(self.table.device)].double()

    def _rounded(self, values: torch.Tensor) -> torch.Tensor:
        return values.to(self.weights["fc.weight"].device, self.dtype).double()


def _of(sample: Sample, name: str) -> torch.Tensor:
    value = sample[name]
    assert value is not None, name
    return value
