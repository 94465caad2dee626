"""Attention metadata of the layers that do not see dropped tokens.

Their KV is compacted: of n tokens of a sequence d are missing, and the others take slots 0 … n-d-1 of the request's own
blocks, in order. So all that changes is how long sequences and queries are, and where KV is written; which tokens were
dropped does not matter. Rotary positions are in the keys already, and stay the original ones.
"""

from typing import Any

import torch
from torch import Tensor

from mmspec.encoders.device import to_device
from mmspec.encoders.fastv.rows import Rows


def without_dropped(common: Any, rows: Rows, block_size: int) -> Any:
    """vLLM's `CommonAttentionMetadata` of a step for the layers that see only kept tokens.

    Args:
        common: what the other layers get.
        rows: the same batch's arithmetic.
        block_size: tokens in a block of the block table.
    """
    device = common.seq_lens.device
    left, dropped = (to_device(torch.from_numpy(one), device) for one in (rows.left_before, rows.dropped))
    starts, lengths = common.query_start_loc - left, common.seq_lens - dropped
    starts_on_host = common.query_start_loc_cpu - torch.from_numpy(rows.left_before)
    tokens = common.num_actual_tokens - int(rows.leaving.sum())
    # With tokens leaving, the batch is gathered without the rows that only fill it up.
    padding = 0 if rows.prompts else common.slot_mapping.shape[0] - tokens
    slots = compacted_slots(starts, lengths, common.block_table_tensor, block_size, tokens)
    bound = common.seq_lens_cpu_upper_bound
    bound = None if bound is None else bound - torch.from_numpy(rows.dropped)
    return common.replace(
        query_start_loc=starts,
        query_start_loc_cpu=starts_on_host,
        seq_lens=lengths,
        num_actual_tokens=tokens,
        max_query_len=int(starts_on_host.diff().max()),
        max_seq_len=common.max_seq_len if bound is None else int(bound.max()),
        slot_mapping=torch.nn.functional.pad(slots.to(common.slot_mapping.dtype), (0, padding), value=-1),
        seq_lens_cpu_upper_bound=bound,
        positions=None,  # indices in the whole sequence, of no use among compacted ones
        _num_computed_tokens_cache=None,
        _token_to_req_indices_cache=None,
    )


def compacted_slots(starts: Tensor, lengths: Tensor, blocks: Tensor, block_size: int, tokens: int) -> Tensor:
    """Where each token of a step is written, its sequence's last tokens being those of the step  # [tokens], int64

    Args:
        starts: where each request's tokens begin in the batch, and where the last end  # [requests + 1]
        lengths: of each sequence with the tokens of this step  # [requests]
        blocks: the block table  # [requests, blocks]
        block_size: tokens in a block.
        tokens: how many there are, the last value of `starts`; given, so that nobody waits for the device.
    """
    counts = starts.diff()
    request = torch.arange(len(counts), device=starts.device).repeat_interleave(counts, output_size=tokens)
    place = torch.arange(tokens, device=starts.device) + (lengths - starts[1:])[request]
    block = blocks[request, place // block_size].long()
    return block * block_size + place % block_size
