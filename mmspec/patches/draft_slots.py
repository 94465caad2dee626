"""Gives drafts their own positions, and the right KV slots, where the target uses M-RoPE.

Behind a picture the temporal M-RoPE id is smaller than the index in the sequence: a grid of H × W tokens moves
it on by max(H, W) only. vLLM's V1 runner feeds the draft that id as its position and looks up the KV slot with
it, so that later draft steps write over the draft's KV of the prompt. The V2 runner uses indices throughout.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mmspec.compat import SUPPORTED
from mmspec.patches.configured import is_configured
from mmspec.patches.patch import Patch

if TYPE_CHECKING:
    from torch import Tensor

_PROPOSER = "vllm.v1.spec_decode.llm_base_proposer:SpecDecodeBaseProposer"


def sequence_indices(query_start_loc: "Tensor", seq_lens: "Tensor", tokens: int) -> "Tensor":
    """Each scheduled token's index in its own sequence, without waiting for the device.

    Args:
        query_start_loc: where each request's tokens start in the batch, and where the last ends  # [requests + 1]
        seq_lens: length of each sequence up to its last scheduled token  # [requests]
        tokens: how many are scheduled, the last value of `query_start_loc`.
    """
    import torch  # vLLM has it by now; a process that only loads the plugin may not

    ends = query_start_loc[1:]
    shifts = (seq_lens - ends).repeat_interleave(ends - query_start_loc[:-1], output_size=tokens)
    return torch.arange(tokens, device=shifts.device) + shifts  # [tokens], int64


def _wrap_first_pass(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def set_inputs_first_pass(
        self: Any,
        target_token_ids: "Tensor",
        next_token_ids: "Tensor",
        target_positions: "Tensor",
        target_hidden_states: "Tensor",
        token_indices_to_sample: "Tensor | None",
        cad: Any,
        num_rejected_tokens_gpu: "Tensor | None",
    ) -> Any:
        if _is_concerned(self) and not self.uses_mrope:
            indices = sequence_indices(cad.query_start_loc, cad.seq_lens, target_token_ids.shape[0])
            target_positions = indices.unsqueeze(0)  # vLLM takes the first row of the target's ids
        return original(
            self,
            target_token_ids=target_token_ids,
            next_token_ids=next_token_ids,
            target_positions=target_positions,
            target_hidden_states=target_hidden_states,
            token_indices_to_sample=token_indices_to_sample,
            cad=cad,
            num_rejected_tokens_gpu=num_rejected_tokens_gpu,
        )

    return set_inputs_first_pass


def _wrap_next_step(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _update_positions_dependent_metadata(
        self: Any,
        positions: "Tensor",
        common_attn_metadata: Any,
        batch_size: int,
        input_batch_size: int,
        block_size: int,
    ) -> Any:
        steps = (common_attn_metadata, batch_size, input_batch_size, block_size)
        if not (_is_concerned(self) and self.uses_mrope):
            return original(self, positions, *steps)
        following = positions.amax(dim=0) + 1  # text comes after the largest id, in all dimensions
        indices = common_attn_metadata.seq_lens[:batch_size].long() - 1
        original(self, indices.unsqueeze(0), *steps)  # right slots, but indices for ids
        ids = self.mrope_positions[:, :batch_size]
        ids.copy_(following.where(indices + 1 < self.max_model_len, 0))
        return ids

    return _update_positions_dependent_metadata


def _is_concerned(proposer: Any) -> bool:
    config = proposer.vllm_config
    return is_configured(config.additional_config) and config.model_config.uses_mrope


PLAIN_INDICES = Patch(
    target=f"{_PROPOSER}.set_inputs_first_pass",
    parameters=(
        "self",
        "target_token_ids",
        "next_token_ids",
        "target_positions",
        "target_hidden_states",
        "token_indices_to_sample",
        "cad",
        "num_rejected_tokens_gpu",
    ),
    wrap=_wrap_first_pass,
    why="behind a picture a draft without M-RoPE gets the target's temporal ids for positions, in V1, and all its "
    "later KV slots follow from them; it is trained on indices in the sequence, and V2 gives it those",
    upstream="vLLM issue 54498, pull request 54716",
    versions=SUPPORTED,
    remove_when="V1 gives drafts without M-RoPE indices in the sequence, or V1 is gone",
    lazy=True,
)
SLOTS_BY_INDEX = Patch(
    target=f"{_PROPOSER}._update_positions_dependent_metadata",
    parameters=(
        "self",
        "positions",
        "common_attn_metadata",
        "batch_size",
        "input_batch_size",
        "block_size",
    ),
    wrap=_wrap_next_step,
    why="behind a picture a draft with M-RoPE writes its KV to slots looked up by the temporal id, in V1, "
    "over the KV of the prompt",
    upstream="vLLM issue 54498, pull request 54716",
    versions=SUPPORTED,
    remove_when="V1 looks up the slots of every draft step by the index in the sequence, or V1 is gone",
    lazy=True,
)
