"""What does a draft step cost beside a step of its target?"""

from typing import Any

import torch
from torch import nn
from transformers import Qwen2_5_VLTextConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VLDecoderLayer,
    Qwen2_5_VLRMSNorm,
    Qwen2_5_VLRotaryEmbedding,
)

from gpu_check.head import PlainHead, make_head, making
from gpu_check.run import Row, Run, Size
from gpu_check.timing import Step, captured, in_turn, spread

_CALLS = 10


class Target(nn.Module):
    """The text model, random; where memory is short, its layers take turns with fewer layers' weights."""

    def __init__(self, size: Size, held_layers: int) -> None:
        super().__init__()
        config = _target_config(size)
        self.layers_run = size.layers
        self.embed_tokens = nn.Embedding(size.vocabulary, size.hidden)
        self.layers = nn.ModuleList(Qwen2_5_VLDecoderLayer(config, index) for index in range(held_layers))
        self.rotary_emb = Qwen2_5_VLRotaryEmbedding(config)
        self.norm = Qwen2_5_VLRMSNorm(size.hidden, eps=size.norm_eps)
        self.lm_head = nn.Linear(size.hidden, size.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, cache: Any) -> torch.Tensor:
        """The next tokens [sequences, 1], greedy."""
        hidden = self.embed_tokens(tokens)
        rotary = self.rotary_emb(hidden, positions)
        for index in range(self.layers_run):
            layer = self.layers[index % len(self.layers)]
            hidden = layer(hidden, attention_mask=None, past_key_values=cache, position_embeddings=rotary)
        return self.lm_head(self.norm(hidden)).argmax(-1)


class FullCache:
    """Keys and values of so many tokens; each step writes the last one anew, so that all steps cost the same."""

    def __init__(self, run: Run, layers: int, sequences: int) -> None:
        shape = (sequences, run.size.kv_heads, run.size.kv_tokens, run.size.head_size)
        self._held = [
            tuple(torch.randn(shape, device=run.device, dtype=run.dtype) for _ in range(2))
            for _ in range(layers)
        ]

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        held_keys, held_values = self._held[layer]
        held_keys[:, :, -1:] = keys
        held_values[:, :, -1:] = values
        return held_keys, held_values


@torch.no_grad()
def step_cost(run: Run) -> list[Row]:
    """Steps of one token a sequence, in turn; on a GPU also as CUDA graphs, as engines run them."""
    head = make_head(run, run.dtype).eval()
    held = _layers_that_fit(run)
    with making(run.device, run.dtype):
        target = Target(run.size, held).eval()
    by_weights = _weights(head) / (_weights(target) * run.size.layers / held)
    rows = []
    for sequences in (1, 8):
        steps = {"target": _target_step(run, target, sequences), "draft": _draft_step(run, head, sequences)}
        rows.append(_compared(run, f"batch {sequences}, eager", steps))
        if run.device.type == "cuda":
            rows.append(_compared_as_graphs(run, f"batch {sequences}, CUDA graph", steps))
    for row in rows:
        row.figures |= {"ratio_by_weights": by_weights, "target_layers_held": held}
    return rows


def _compared(run: Run, what: str, steps: dict[str, Step]) -> Row:
    times = in_turn(steps, run.device, run.size.repeats, _CALLS)
    ratios = [draft / target for draft, target in zip(times["draft"], times["target"], strict=True)]
    figures = (
        spread("draft_ms", times["draft"]) | spread("target_ms", times["target"]) | spread("ratio", ratios)
    )
    return Row(what, figures)


def _compared_as_graphs(run: Run, what: str, steps: dict[str, Step]) -> Row:
    try:
        graphs = {name: captured(step) for name, step in steps.items()}
    except RuntimeError as error:
        return Row(what, failure=f"{what}: not captured: {str(error).splitlines()[0]}")
    return _compared(run, what, graphs)


def _target_step(run: Run, target: Target, sequences: int) -> Step:
    tokens = torch.zeros(sequences, 1, dtype=torch.long, device=run.device)
    positions = torch.full((3, sequences, 1), run.size.kv_tokens - 1, device=run.device)
    cache = FullCache(run, run.size.layers, sequences)
    return lambda: target(tokens, positions, cache)


def _draft_step(run: Run, head: PlainHead, sequences: int) -> Step:
    """From one token to the next, in the target's vocabulary; a draft's first step fuses layers besides."""
    tokens = torch.zeros(sequences, 1, dtype=torch.long, device=run.device)
    positions = torch.full((sequences, 1), run.size.kv_tokens - 1, device=run.device)
    hidden = torch.randn(sequences, 1, run.size.hidden, device=run.device, dtype=run.dtype)
    cache = FullCache(run, 1, sequences)
    offsets = head.get_buffer("d2t")

    def step() -> torch.Tensor:
        logits, _ = head.step(head.embed_tokens(tokens), hidden, positions, cache)
        best = logits.argmax(-1)
        return best + offsets[best]

    return step


def _layers_that_fit(run: Run) -> int:
    if run.device.type != "cuda":
        return run.size.layers
    size = run.size
    layer = 3 * size.hidden * size.mlp + 2 * size.hidden * (size.heads + size.kv_heads) * size.head_size
    around = 2 * size.vocabulary * size.hidden
    free, _ = torch.cuda.mem_get_info()
    return max(1, min(size.layers, int(free * 0.8 / run.dtype.itemsize - around) // layer))


def _weights(module: nn.Module) -> int:
    """Those that a step reads: an embedding is looked up, and states are fused in a draft's first step only."""
    left_out = ("embed_tokens.", "verifier_", "fc.")
    return sum(p.numel() for name, p in module.named_parameters() if not name.startswith(left_out))


def _target_config(size: Size) -> Qwen2_5_VLTextConfig:
    eighth = size.head_size // 8
    sections = [eighth, (size.head_size // 2 - eighth) // 2, (size.head_size // 2 - eighth) // 2]
    config = Qwen2_5_VLTextConfig(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.mlp,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        rms_norm_eps=size.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": size.rope_theta, "mrope_section": sections},
    )
    config._attn_implementation = "sdpa"
    return config
