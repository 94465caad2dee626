"""Index arithmetic of compacted KV, against a cache that is simulated token by token."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmspec.encoders.fastv.book import Step
from mmspec.encoders.fastv.metadata import without_dropped
from mmspec.encoders.fastv.rows import arrange
from tests.unit.encoders.fastv.steps import prompt

BLOCK, BLOCKS = 4, 16


@dataclass
class Common:
    """The fields of vLLM's `CommonAttentionMetadata` that change, and two that do not."""

    query_start_loc: Any
    query_start_loc_cpu: Any
    seq_lens: Any
    num_reqs: int
    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int
    block_table_tensor: Any
    slot_mapping: Any
    positions: Any = None
    seq_lens_cpu_upper_bound: Any = None
    _num_computed_tokens_cache: Any = 1
    _token_to_req_indices_cache: Any = 1

    def replace(self, **changes: Any) -> "Common":
        return replace(self, **changes)


@dataclass(frozen=True)
class Request:
    """`computed` tokens came before, `dropped` of them have no KV in the deep layers; `now` prunes a whole prompt."""

    computed: int
    scheduled: int
    dropped: int
    now: bool


@st.composite
def requests(draw: st.DrawFn) -> Request:
    scheduled = draw(st.integers(1, 20))
    if draw(st.booleans()):
        return Request(
            0, scheduled, draw(st.integers(1, scheduled - 1)) if scheduled > 1 else 0, scheduled > 1
        )
    computed = draw(st.integers(0, 30))
    return Request(computed, scheduled, draw(st.integers(0, max(computed - 1, 0))), False)


batches = st.lists(requests(), min_size=1, max_size=6)


def metadata(batch: list[Request], padding: int) -> Any:
    """A step's common metadata as the runner makes it, and the step."""
    lengths = torch.tensor([one.computed + one.scheduled for one in batch], dtype=torch.int32)
    starts = torch.tensor(np.concatenate([[0], np.cumsum([r.scheduled for r in batch])]), dtype=torch.int32)
    blocks = torch.randperm(len(batch) * BLOCKS).reshape(len(batch), BLOCKS).int()
    slots = [
        slot_of(blocks[row], one.computed + i) for row, one in enumerate(batch) for i in range(one.scheduled)
    ]
    common = Common(
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=lengths,
        num_reqs=len(batch),
        num_actual_tokens=int(starts[-1]),
        max_query_len=max(one.scheduled for one in batch),
        max_seq_len=int(lengths.max()),
        block_table_tensor=blocks,
        slot_mapping=torch.tensor(slots + [-1] * padding),
        seq_lens_cpu_upper_bound=lengths,
    )
    names = [str(row) for row in range(len(batch))]
    pruned = {
        name: prompt(one.scheduled, list(range(one.dropped + 1)), keep=1 / (one.dropped + 1))
        for name, one in zip(names, batch, strict=True)
        if one.now
    }
    dropped = {name: one.dropped for name, one in zip(names, batch, strict=True) if one.dropped}
    step = Step({name: one.scheduled for name, one in zip(names, batch, strict=True)}, pruned, dropped)
    return common, arrange(step, names)


def slot_of(blocks: torch.Tensor, place: int) -> int:
    return int(blocks[place // BLOCK]) * BLOCK + place % BLOCK


@settings(deadline=None)  # a busy machine is no fault
@given(batches, st.integers(0, 3))
def test_metadata_describes_the_compacted_cache(batch: list[Request], padding: int) -> None:
    common, rows = metadata(batch, padding)

    short = without_dropped(common, rows, BLOCK)

    expected_slots, lengths, queries = [], [], []
    for row, one in enumerate(batch):
        query = one.scheduled - (one.dropped if one.now else 0)
        before = one.computed if one.now else one.computed - one.dropped  # compacted tokens in the cache
        expected_slots += [slot_of(common.block_table_tensor[row], before + i) for i in range(query)]
        lengths.append(before + query)
        queries.append(query)
    filled = 0 if any(one.now for one in batch) else padding
    assert short.slot_mapping.tolist() == expected_slots + [-1] * filled
    assert short.seq_lens.tolist() == short.seq_lens_cpu_upper_bound.tolist() == lengths
    assert short.query_start_loc.diff().tolist() == short.query_start_loc_cpu.diff().tolist() == queries
    assert (short.num_actual_tokens, short.max_query_len) == (sum(queries), max(queries))
    assert short.max_seq_len == max(lengths)
    assert short.slot_mapping.dtype == common.slot_mapping.dtype
    assert short.block_table_tensor is common.block_table_tensor


@settings(deadline=None)  # a busy machine is no fault
@given(batches, st.integers(0, 3))
def test_without_dropped_tokens_nothing_changes(batch: list[Request], padding: int) -> None:
    batch = [replace(one, dropped=0, now=False) for one in batch]
    common, rows = metadata(batch, padding)

    short = without_dropped(common, rows, BLOCK)

    assert torch.equal(short.slot_mapping, common.slot_mapping)
    assert torch.equal(short.seq_lens, common.seq_lens)
    assert torch.equal(short.query_start_loc, common.query_start_loc)


@settings(deadline=None)  # a busy machine is no fault
@given(batches)
def test_text_always_stays_and_every_row_is_accounted_for(batch: list[Request]) -> None:
    _, rows = metadata(batch, 0)

    candidates = {start + int(i) for start, one in rows.prompts for i in one.visual}
    assert sorted(candidates | set(rows.certain.tolist())) == list(range(rows.tokens))
    assert not candidates & set(rows.certain.tolist())
    assert rows.remaining == len(rows.certain) + sum(one.kept for _, one in rows.prompts)
