"""The picture before each row, found again in whatever steps a request is computed, against a plain search."""

import random
from dataclasses import dataclass, field

import pytest
import torch

from mmspec.heads.serving.pictures import BatchRows, PictureTable
from mmspec.heads.vision import ImageSummary

WIDTH, BLOCK = 6, 4


@dataclass
class Sequence:
    """One request: its rows, what is visual, its features by row, and the blocks that it was given."""

    visual: list[bool]
    features: torch.Tensor
    blocks: list[int]
    done: int = 0
    added: dict[int, torch.Tensor] = field(default_factory=dict)


@pytest.fixture
def summary() -> ImageSummary:
    torch.manual_seed(0)
    made = ImageSummary(WIDTH, 8)
    for weight in (made.score.weight, made.down.weight):
        torch.nn.init.normal_(weight)
    return made.eval()


@pytest.mark.parametrize("seed", range(8))
def test_rows_find_their_picture_in_whatever_chunks(seed: int, summary: ImageSummary) -> None:
    rng = random.Random(seed)
    blocks = rng.sample(range(60), 60)
    sequences = [make_sequence(rng, blocks) for _ in range(4)]
    table = PictureTable(60, BLOCK, 16, WIDTH, torch.device("cpu"))
    while active := [one for one in sequences if one.done < len(one.visual)]:
        chosen = rng.sample(active, rng.randint(1, len(active)))
        run(table, summary, [(one, rng.randint(1, 9)) for one in chosen], padding=rng.randint(0, 3))
    for one in sequences:
        check(one, summary)


def test_a_shared_prefix_brings_its_picture(summary: ImageSummary) -> None:
    """The second request begins behind two full blocks of the first, and never prefills the picture itself."""
    features = torch.randn(12, WIDTH)
    visual = [False] * 2 + [True] * 4 + [False] * 6
    first = Sequence(visual, features, [5, 9, 2])
    second = Sequence(visual, features, [5, 9, 7], done=8)
    table = PictureTable(60, BLOCK, 16, WIDTH, torch.device("cpu"))
    run(table, summary, [(first, 12)])
    run(table, summary, [(second, 4)])
    check(second, summary)
    assert second.added.keys() == set(range(8, 12))


def test_a_picture_that_gave_way_adds_nothing(summary: ImageSummary) -> None:
    visual = [True, False, False]
    old, *others = (Sequence(visual, torch.randn(3, WIDTH), [number]) for number in range(4))
    table = PictureTable(60, BLOCK, 2, WIDTH, torch.device("cpu"))
    run(table, summary, [(old, 2)])
    for other in others:
        run(table, summary, [(other, 3)])
    run(table, summary, [(old, 1)])
    assert old.added[1].abs().sum() > 0
    assert old.added[2].abs().sum() == 0


def make_sequence(rng: random.Random, blocks: list[int]) -> Sequence:
    visual: list[bool] = []
    while len(visual) < 25:
        visual += [False] * rng.randint(1, 6) + [True] * rng.choice((0, 1, 3, 7))
    own = [blocks.pop() for _ in range(-(-len(visual) // BLOCK))]
    return Sequence(visual, torch.randn(len(visual), WIDTH), own)


def run(
    table: PictureTable, summary: ImageSummary, steps: list[tuple[Sequence, int]], padding: int = 0
) -> None:
    """One batch: each request is computed so many rows on."""
    spans = [(one, one.done, min(one.done + count, len(one.visual))) for one, count in steps]
    positions = [position for _, start, end in spans for position in range(start, end)]
    visual = [one.visual[p] for one, start, end in spans for p in range(start, end)]
    features = [one.features[p] for one, start, end in spans for p in range(start, end) if one.visual[p]]
    starts = torch.tensor([0, *(end - start for _, start, end in spans)]).cumsum(0)
    columns = max(len(one.blocks) for one, _, _ in spans)
    rows = BatchRows(
        torch.tensor(positions + [3] * padding),
        starts.int(),
        torch.tensor([one.blocks + [0] * (columns - len(one.blocks)) for one, _, _ in spans]).int(),
        torch.tensor(visual + [True] * padding),
    )
    found = table.added(summary, rows, torch.stack(features) if features else None, torch.float32)
    for number, (one, start, end) in enumerate(spans):
        part = found[starts[number] : starts[number + 1]]
        one.added |= dict(zip(range(start, end), part, strict=True))
        one.done = end


def check(one: Sequence, summary: ImageSummary) -> None:
    for position, added in one.added.items():
        torch.testing.assert_close(added, expected(one, position, summary), atol=1e-5, rtol=1e-4)


def expected(one: Sequence, position: int, summary: ImageSummary) -> torch.Tensor:
    """What the last picture before a text row adds, looked up by going back."""
    before = [p for p in range(position) if one.visual[p]]
    if one.visual[position] or not before:
        return torch.zeros(WIDTH)
    start = before[-1]
    while start > 0 and one.visual[start - 1]:
        start -= 1
    weights, weighted = summary.weigh(one.features[start : before[-1] + 1])
    return summary.read(weights.sum(0), weighted.sum(0), torch.float32)
