"""The arithmetic of draft positions and KV slots, against counting them out one by one."""

from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmspec.patches.draft_slots import PLAIN_INDICES, SLOTS_BY_INDEX, sequence_indices

BLOCK = 4
MAX_LENGTH = 64


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Requests as (tokens computed before, tokens scheduled now)."""
    request = st.tuples(st.integers(0, 40), st.integers(1, 12))
    return draw(st.lists(request, min_size=1, max_size=5))


def tensors(batch: list[tuple[int, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    starts = [sum(scheduled for _, scheduled in batch[:row]) for row in range(len(batch) + 1)]
    lengths = [computed + scheduled for computed, scheduled in batch]
    return torch.tensor(starts, dtype=torch.int32), torch.tensor(lengths, dtype=torch.int32)


def proposer(*, configured: bool = True, target_mrope: bool = True, draft_mrope: bool = False) -> Any:
    config = SimpleNamespace(
        additional_config={"mmspec": {}} if configured else {},
        model_config=SimpleNamespace(uses_mrope=target_mrope),
    )
    return SimpleNamespace(
        vllm_config=config,
        uses_mrope=draft_mrope,
        max_model_len=MAX_LENGTH,
        mrope_positions=torch.full((3, 9), -1),
    )


@settings(deadline=None)  # a busy machine is no fault
@given(batches())
def test_indices_are_those_that_counting_gives(batch: list[tuple[int, int]]) -> None:
    query_start_loc, seq_lens = tensors(batch)

    indices = sequence_indices(query_start_loc, seq_lens, int(query_start_loc[-1]))

    assert indices.dtype == torch.int64
    assert indices.tolist() == [
        computed + place for computed, scheduled in batch for place in range(scheduled)
    ]


def first_pass(drafter: Any, batch: list[tuple[int, int]], ids: torch.Tensor) -> torch.Tensor:
    """The positions that vLLM's own function is given."""
    query_start_loc, seq_lens = tensors(batch)
    wrapped = PLAIN_INDICES.wrap(lambda self, **arguments: arguments["target_positions"])
    metadata = SimpleNamespace(query_start_loc=query_start_loc, seq_lens=seq_lens)
    given_positions: torch.Tensor = wrapped(
        drafter, torch.zeros(int(query_start_loc[-1])), None, ids, None, None, metadata, None
    )
    return given_positions


def test_the_first_pass_is_given_indices_in_the_row_that_vllm_reads() -> None:
    ids = torch.tensor([[3, 3, 5]] * 3)

    assert first_pass(proposer(), [(7, 2), (0, 1)], ids).tolist() == [[7, 8, 0]]


def test_ids_pass_where_the_patch_has_no_say() -> None:
    ids = torch.tensor([[3, 3, 5]] * 3)

    for drafter in (proposer(configured=False), proposer(target_mrope=False), proposer(draft_mrope=True)):
        assert first_pass(drafter, [(7, 2), (0, 1)], ids) is ids


def vllm_step(
    drafter: Any, positions: torch.Tensor, metadata: Any, batch_size: int, input_batch: int, block_size: int
) -> torch.Tensor:
    """What vLLM 0.32 does for one more draft step, in its own terms: position + 1, slot, length + 1."""
    for row in range(batch_size):
        following = int(positions[0][row]) + 1
        fits = following < MAX_LENGTH
        drafter.mrope_positions[:, row] = following if fits else 0
        block = metadata.block_table_tensor[row, following // block_size] if fits else -1
        metadata.slot_mapping[row] = block * block_size + following % block_size if fits else -1
        metadata.seq_lens[row] = metadata.seq_lens[row] + 1 if fits else 1
    return drafter.mrope_positions[:, :batch_size]


def next_steps(drafter: Any, lengths: list[int], ids: torch.Tensor, steps: int) -> list[tuple[Any, Any]]:
    """Ids and slots of every later draft step."""
    rows = len(lengths)
    metadata = SimpleNamespace(
        seq_lens=torch.tensor(lengths, dtype=torch.int32),
        block_table_tensor=torch.randperm(rows * MAX_LENGTH // BLOCK).reshape(rows, -1),
        slot_mapping=torch.zeros(rows, dtype=torch.int64),
    )
    step = SLOTS_BY_INDEX.wrap(vllm_step)
    seen = []
    for _ in range(steps):
        ids = step(drafter, ids, metadata, rows, rows, BLOCK)
        where = [divmod(slot, BLOCK) for slot in metadata.slot_mapping.tolist()]
        blocks = metadata.block_table_tensor
        seen.append((ids.tolist(), [(blocks[row].tolist().index(b), o) for row, (b, o) in enumerate(where)]))
    return seen


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(1, 5), st.data())
def test_a_draft_with_mrope_keeps_its_ids_and_gets_slots_by_index(
    lengths: list[int], steps: int, data: st.DataObject
) -> None:
    """Ids go on after the largest of the three; slots follow the sequence, whatever the ids are."""
    last = [[data.draw(st.integers(0, length - 1)) for length in lengths] for _ in range(3)]

    seen = next_steps(proposer(draft_mrope=True), lengths, torch.tensor(last), steps)

    for step, (ids, slots) in enumerate(seen):
        following = [max(column) + 1 + step for column in zip(*last, strict=True)]
        assert ids == [following] * 3
        assert slots == [divmod(length + step, BLOCK) for length in lengths]


def test_past_the_longest_sequence_nothing_is_written() -> None:
    drafter = proposer(draft_mrope=True)
    metadata = SimpleNamespace(
        seq_lens=torch.tensor([MAX_LENGTH], dtype=torch.int32),
        block_table_tensor=torch.zeros(1, MAX_LENGTH // BLOCK, dtype=torch.int32),
        slot_mapping=torch.zeros(1, dtype=torch.int64),
    )

    ids = SLOTS_BY_INDEX.wrap(vllm_step)(drafter, torch.tensor([[5]] * 3), metadata, 1, 1, BLOCK)

    assert ids.tolist() == [[0]] * 3
    assert metadata.slot_mapping.tolist() == [-1]


def test_an_unconfigured_engine_keeps_vllms_own_slots() -> None:
    ((_, slots),) = next_steps(
        proposer(configured=False, draft_mrope=True), [20], torch.tensor([[5]] * 3), steps=1
    )

    assert slots == [divmod(6, BLOCK)]  # the fault: 20 was due
