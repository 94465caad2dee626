"""An EAGLE-3 head without speculators: its parts by the same names, of transformers' Llama layers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding

from gpu_check.run import Run, Size
from mmspec.heads.train.unroll import rotary_of


class FirstLayer(LlamaDecoderLayer):
    """Takes embeddings and states side by side, each under its own norm, as speculators' first layer does."""

    def __init__(self, config: LlamaConfig, norm_before_residual: bool) -> None:
        super().__init__(config, layer_idx=0)
        self.norm_before_residual = norm_before_residual
        self.hidden_norm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        for name in ("q_proj", "k_proj", "v_proj"):
            out = getattr(self.self_attn, name).out_features
            setattr(self.self_attn, name, nn.Linear(2 * config.hidden_size, out, bias=False))

    def forward(self, hidden_states: torch.Tensor, **attention: Any) -> torch.Tensor:
        embeddings, hidden = hidden_states.chunk(2, dim=-1)
        normed = self.hidden_norm(hidden)
        both = torch.cat([self.input_layernorm(embeddings), normed], dim=-1)
        attended, _ = self.self_attn(hidden_states=both, **attention)
        hidden = (normed if self.norm_before_residual else hidden) + attended
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class PlainHead(nn.Module):
    """What `mmspec.heads.train.unroll` takes for a head; random until weights are loaded."""

    def __init__(self, size: Size, norm_before_residual: bool = True) -> None:
        super().__init__()
        layer = layer_config(size)
        self.config: Any = SimpleNamespace(norm_output=False, transformer_layer_config=layer)
        self.embed_tokens = nn.Embedding(size.vocabulary, size.hidden).requires_grad_(False)
        self.input_norm: nn.Module | None = None
        self.fc_norm: nn.ModuleList | None = None
        self.fc = nn.Linear(size.fused_layers * size.hidden, size.hidden, bias=False)
        self.layers = nn.ModuleList([FirstLayer(layer, norm_before_residual)])
        self.rotary_emb: nn.Module = LlamaRotaryEmbedding(layer)
        self.norm: nn.Module = LlamaRMSNorm(size.hidden, eps=size.norm_eps)
        self.lm_head = nn.Linear(size.hidden, size.draft_vocabulary, bias=False)
        self.verifier_norm: nn.Module = LlamaRMSNorm(size.hidden, eps=size.norm_eps).requires_grad_(False)
        self.verifier_lm_head = nn.Linear(size.hidden, size.draft_vocabulary, bias=False).requires_grad_(
            False
        )
        self.register_buffer("d2t", torch.zeros(size.draft_vocabulary, dtype=torch.long))
        self._randomize(size)

    def step(
        self,
        embeddings: torch.Tensor,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        cache: Any,
        mask: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One draft step as in serving: logits of the last row [sequences, draft vocabulary], and all rows' states."""
        states = torch.cat([embeddings, hidden], dim=-1)
        rotary = rotary_of(self, states, positions)
        for layer in self.layers:
            states = layer(states, attention_mask=mask, past_key_values=cache, position_embeddings=rotary)
        return self.lm_head(self.norm(states[:, -1])), states

    @torch.no_grad()
    def _randomize(self, size: Size) -> None:
        """Weights that keep the scale, under which attention is far from even and so worth checking."""
        for weight in self.parameters():
            mean, spread = (1.0, 0.1) if weight.dim() == 1 else (0.0, weight.shape[1] ** -0.5)
            nn.init.normal_(weight, mean, spread)
        self.get_parameter("layers.0.self_attn.q_proj.weight").mul_(2)
        chosen = torch.randperm(size.vocabulary)[: size.draft_vocabulary].sort().values
        self.get_buffer("d2t").copy_(chosen - torch.arange(size.draft_vocabulary))


def make_head(run: Run, dtype: torch.dtype) -> PlainHead:
    """A random head, with the run's fault if it has one."""
    torch.manual_seed(0)
    with making(run.device, dtype):
        head = PlainHead(run.size)
        if run.fault is not None:
            FAULTS[run.fault](head)
    return head


@contextmanager
def making(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Modules made inside are there and of that type; casting them later would round the rotary frequencies, too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            yield
    finally:
        torch.set_default_dtype(before)


def layer_config(size: Size) -> LlamaConfig:
    """Of a head's layer."""
    config = LlamaConfig(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.mlp,
        num_hidden_layers=1,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.head_size,
        rms_norm_eps=size.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": size.rope_theta},
    )
    config._attn_implementation = "sdpa"
    return config


def _other_theta(head: PlainHead) -> None:
    config = head.config.transformer_layer_config
    config.rope_parameters = {**config.rope_parameters, "rope_theta": 1e4}
    head.rotary_emb = LlamaRotaryEmbedding(config)


def _other_residual(head: PlainHead) -> None:
    first = head.layers[0]
    assert isinstance(first, FirstLayer)
    first.norm_before_residual = False


def _rounded_frequencies(head: PlainHead) -> None:
    head.rotary_emb.to(torch.bfloat16)


# Mistakes that the check has to see.
FAULTS: dict[str, Callable[[PlainHead], None]] = {
    "rotary": _other_theta,
    "residual": _other_residual,
    "frequencies": _rounded_frequencies,
}
