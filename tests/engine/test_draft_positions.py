"""Where the V1 runner places a draft behind a picture: positions, KV slots and tokens, against counting.

A draft without M-RoPE of its own is served on plain indices in the sequence; its KV goes to the slots that the
block table has for those. Each pass of the draft in a real engine is compared.
"""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from tests.conftest import Checkpoints
from tests.engine.draft_recorder import DraftRecorder, Proposal
from tests.engine.scenarios import chat
from tests.tiny.heads import build_eagle3_head

pytestmark = [pytest.mark.engine, pytest.mark.slow]

DRAFTED = 4
CHUNK = 40  # shorter than the picture's 64 tokens
Engine = Callable[..., AbstractContextManager[Any]]


@dataclass(frozen=True)
class Scenario:
    """A way to draft. `ahead`: tokens that the draft reads and the target has not yet (the bonus token)."""

    head: str = "eagle3"
    ahead: int = 0
    speculative: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)

    @property
    def drops_rejected(self) -> bool:
        return bool(self.speculative.get("disable_padded_drafter_batch"))


SCENARIOS = {
    "eagle3": Scenario(),
    "eagle3-chunked": Scenario(engine={"max_num_batched_tokens": CHUNK}),
    "eagle3-unpadded": Scenario(speculative={"disable_padded_drafter_batch": True}),
    "draft_model": Scenario(head="llama", ahead=1),
    "draft_model-chunked": Scenario(head="llama", ahead=1, engine={"max_num_batched_tokens": CHUNK}),
}


def picture() -> Image.Image:
    """As large as a tower of production likes it: 64 visual tokens, which M-RoPE counts as 8."""
    made = Image.new("RGB", (224, 224), "white")
    ImageDraw.Draw(made).ellipse((40, 60, 160, 180), fill="green")
    return made


def run(
    engine: Engine, target: Path, head: Path, scenario: Scenario, additional: dict[str, Any]
) -> tuple[DraftRecorder, dict[str, list[int]]]:
    """Answers a text prompt and one with a picture together, twice (the second time with prefixes cached).

    Returns what was recorded, and each request's tokens in full.
    """
    from vllm import SamplingParams

    method = "draft_model" if scenario.ahead else "eagle3"
    speculative = {"method": method, "model": str(head), "num_speculative_tokens": DRAFTED}
    with_picture = chat("qwen2_5_vl", "What is in the picture?", ("picture",)).text
    prompts = [
        {"prompt": chat("qwen2_5_vl", "How many apples: one, two, three, four, five?").text},
        {"prompt": with_picture, "multi_modal_data": {"image": [picture()]}},
    ]
    sampling = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
    with engine(
        str(target),
        speculative_config={**speculative, **scenario.speculative},
        additional_config=additional,
        block_size=32,
        **scenario.engine,
    ) as llm:
        recorder = DraftRecorder(llm)
        outputs = [output for _ in range(2) for output in llm.generate(prompts, sampling, use_tqdm=False)]
    sequences = {
        output.request_id: [*output.prompt_token_ids, *output.outputs[0].token_ids] for output in outputs
    }
    return recorder, sequences


@pytest.mark.parametrize("name", SCENARIOS)
def test_drafts_are_placed_by_their_index(name: str, tiny: Checkpoints, vllm_engine: Engine) -> None:
    scenario = SCENARIOS[name]
    recorder, sequences = run(vllm_engine, tiny["qwen2_5_vl"], tiny[scenario.head], scenario, {"mmspec": {}})

    assert_representative(recorder.proposals, scenario)
    for proposal in recorder.proposals:
        assert len(proposal.passes) == DRAFTED
        first, *later = proposal.passes
        places = first_places(proposal, scenario)
        assert [at if at is not None else 0 for _, at in places] == first.positions
        assert [slot(proposal, recorder.block_size, *place) for place in places] == first.slots
        assert first.seq_lens == first_lengths(proposal, scenario)
        assert_tokens(proposal, sequences, scenario)
        for step, given in enumerate(later, start=1):
            ends = [end + step for end in last_indices(proposal, scenario)]
            assert given.positions == ends
            assert given.slots == [
                slot(proposal, recorder.block_size, row, end) for row, end in enumerate(ends)
            ]
            if not scenario.drops_rejected:  # on a CPU, vLLM then counts the lengths up twice: docs/faults.md
                assert given.seq_lens == [end + 1 for end in ends]


def first_places(proposal: Proposal, scenario: Scenario) -> list[tuple[int, int | None]]:
    """Row and index of each token of the first pass; None for those whose KV must not be kept."""
    places: list[tuple[int, int | None]] = []
    for row in proposal.rows:
        start, count = proposal.computed[row], proposal.scheduled[row]
        if scenario.ahead or scenario.drops_rejected:
            count -= proposal.rejected[row]
        places += [(row, start + place) for place in range(count + scenario.ahead)]
        if scenario.ahead:
            places += [(row, None)] * proposal.rejected[row]
    return places


def first_lengths(proposal: Proposal, scenario: Scenario) -> list[int]:
    dropped = proposal.rejected if scenario.drops_rejected else [0] * len(proposal.requests)
    return [
        computed + scheduled - rejected + scenario.ahead
        for computed, scheduled, rejected in zip(proposal.computed, proposal.scheduled, dropped, strict=True)
    ]


def last_indices(proposal: Proposal, scenario: Scenario) -> list[int]:
    """Where each sequence ends that the first draft token follows."""
    return [
        proposal.computed[row] + proposal.scheduled[row] - proposal.rejected[row] - 1 + scenario.ahead
        for row in proposal.rows
    ]


def slot(proposal: Proposal, block_size: int, row: int, index: int | None) -> int:
    if index is None:
        return -1
    return proposal.blocks[row][index // block_size] * block_size + index % block_size


def assert_tokens(proposal: Proposal, sequences: dict[str, list[int]], scenario: Scenario) -> None:
    """EAGLE reads at each index the token after it, the next chunk's first one too; a draft model the token."""
    shift = 1 - scenario.ahead
    rows = iter(proposal.passes[0].tokens)
    for row, index in first_places(proposal, scenario):
        token = next(rows)
        sequence = sequences[proposal.requests[row].rsplit("-", 1)[0]]
        last = last_indices(proposal, scenario)[row]
        if index is not None and index <= last and index + shift < len(sequence):
            assert token == sequence[index + shift], (proposal.requests[row], index, last)


def assert_representative(proposals: list[Proposal], scenario: Scenario) -> None:
    """What the comparison is to cover did happen."""
    assert any(len(proposal.requests) == 2 for proposal in proposals)
    assert any(any(proposal.rejected) for proposal in proposals)
    assert any(DRAFTED not in proposal.rejected for proposal in proposals[1:])
    assert any(computed and scheduled > DRAFTED + 1 for computed, scheduled in starts(proposals))
    if "max_num_batched_tokens" in scenario.engine:
        assert sum(scheduled > DRAFTED + 1 for _, scheduled in starts(proposals)) > 4


def starts(proposals: list[Proposal]) -> list[tuple[int, int]]:
    return [
        pair for proposal in proposals for pair in zip(proposal.computed, proposal.scheduled, strict=True)
    ]


def test_stock_vllm_still_needs_the_patch(tiny: Checkpoints, vllm_engine: Engine) -> None:
    """Without mmspec the second draft token's slot is off by what M-RoPE saves, 64 - 8: the patch's reason."""
    recorder, _ = run(vllm_engine, tiny["qwen2_5_vl"], tiny["eagle3"], Scenario(), {})

    prefill = next(proposal for proposal in recorder.proposals if max(proposal.scheduled) > 64)
    row = prefill.scheduled.index(max(prefill.scheduled))
    due = last_indices(prefill, Scenario())[row] + 1
    assert prefill.passes[1].positions[row] == due - 56
    assert prefill.passes[1].slots[row] == slot(prefill, recorder.block_size, row, due - 56)


def test_a_draft_with_mrope_keeps_its_ids(tiny: Checkpoints, vllm_engine: Engine, tmp_path: Path) -> None:
    """A head whose configuration has M-RoPE sections gets the target's ids, and slots by the index."""
    build_eagle3_head(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["rope_scaling"] = {"rope_type": "default", "mrope_section": [4, 6, 6]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    scenario = Scenario()

    recorder, _ = run(vllm_engine, tiny["qwen2_5_vl"], tmp_path, scenario, {"mmspec": {}})

    for proposal in recorder.proposals:
        first, *later = proposal.passes
        assert first.positions == proposal.ids
        ends = last_indices(proposal, scenario)
        columns = columns_of(ends, proposal)
        for step, given in enumerate(later, start=1):
            following = [max(row[column] for row in proposal.ids) + step for column in columns]
            assert given.positions == [following] * 3
            assert given.slots == [
                slot(proposal, recorder.block_size, row, end + step) for row, end in enumerate(ends)
            ]


def columns_of(ends: list[int], proposal: Proposal) -> list[int]:
    """The column of each sequence's last kept token in the batch."""
    return [sum(proposal.scheduled[:row]) + end - proposal.computed[row] for row, end in enumerate(ends)]
