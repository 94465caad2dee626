"""A new head for a target: speculators' EAGLE-3 model, shaped after the target's own layers."""

from pathlib import Path

import torch
from speculators import SpeculatorsConfig, VerifierConfig
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
from speculators.proposals.greedy import GreedyTokenProposalConfig
from transformers import AutoConfig, LlamaConfig, PretrainedConfig

from mmspec.errors import MmspecError
from mmspec.heads.train.settings import TrainSettings
from mmspec.heads.vision import ImageSummary


def new_head(
    target: Path,
    settings: TrainSettings,
    layer_ids: list[int],
    vocabulary: tuple[torch.Tensor, torch.Tensor],
) -> Eagle3DraftModel:
    """A head with random layers, and with the target's embeddings, output rows and final norm.

    Args:
        target: the target's checkpoint folder.
        layer_ids: the target's layers whose states the head gets, as vLLM counts them.
        vocabulary: `d2t` and `t2d`.
    """
    torch.manual_seed(settings.seed)
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=layer_config(target, settings),
        draft_vocab_size=settings.draft_vocab_size,
        norm_before_residual=settings.norm_before_residual,
        norm_output=settings.norm_output,
        eagle_aux_hidden_state_layer_ids=layer_ids,
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=settings.draft_steps)],
            default_proposal_method="greedy",
            verifier=VerifierConfig.from_pretrained(str(target)),
        ),
    )
    head = Eagle3DraftModel(config=config)
    d2t, t2d = vocabulary
    head.load_vocab_mappings(t2d, d2t)
    head.load_verifier_weights()
    head.lm_head.weight.requires_grad_(True)
    if settings.vision == "global":
        head.vision = ImageSummary(head.hidden_size, settings.summary_size)
    return head


def layer_config(target: Path, settings: TrainSettings) -> LlamaConfig:
    """A Llama layer as wide as the target's."""
    text = text_config(target)
    rope = dict(text.rope_parameters)
    if settings.positions == "mrope" and (rope.get("mrope_interleaved") or "mrope_section" not in rope):
        raise MmspecError(
            f"target {target}: heads can be trained on 3-D ids for M-RoPE in plain sections only; "
            "choose positions=sequence"
        )
    if settings.positions == "sequence":
        rope = {name: value for name, value in rope.items() if not name.startswith("mrope")}
    config = LlamaConfig(
        vocab_size=text.vocab_size,
        hidden_size=text.hidden_size,
        intermediate_size=settings.intermediate_size or text.intermediate_size,
        num_hidden_layers=settings.layers,
        num_attention_heads=text.num_attention_heads,
        num_key_value_heads=text.num_key_value_heads,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads,
        rms_norm_eps=text.rms_norm_eps,
        max_position_embeddings=text.max_position_embeddings,
        rope_parameters={**rope, "rope_type": "default"} if rope.get("rope_type") == "mrope" else rope,
        tie_word_embeddings=False,
    )
    config._attn_implementation = settings.attention
    return config


def text_config(target: Path) -> PretrainedConfig:
    """The configuration of the target's language model."""
    return AutoConfig.from_pretrained(target).get_text_config()
