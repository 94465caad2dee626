"""Criteria on made-up queries and keys, the attentive ones against the full attention matrix."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mmspec.encoders.fastv.scores import CRITERIA, Sight, choose
from mmspec.encoders.fastv.settings import SCORES
from tests.unit.encoders.fastv.steps import prompt

LENGTH, HEADS, KV_HEADS, SIZE = 20, 4, 2, 8
PICTURES = ([3, 4, 5, 6], [9, 10, 11])
VISUAL = [index for picture in PICTURES for index in picture]


@pytest.fixture
def sight() -> Sight:
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(LENGTH, HEADS, SIZE, generator=generator)
    keys = torch.randn(LENGTH, KV_HEADS, SIZE, generator=generator)
    return Sight(prompt(LENGTH, *PICTURES), queries, keys, scale=SIZE**-0.5)


def full_attention(sight: Sight) -> Tensor:
    """[heads, tokens, tokens]"""
    keys = sight.keys.repeat_interleave(HEADS // KV_HEADS, dim=1)
    logits = torch.einsum("qhd,khd->hqk", sight.queries, keys) * sight.scale
    ahead = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    return logits.masked_fill(ahead, float("-inf")).softmax(-1)


def test_every_name_that_may_be_configured_is_there() -> None:
    assert tuple(CRITERIA) == SCORES


@pytest.mark.parametrize("name", ["last", "debiased"])
def test_the_last_tokens_attention_is_averaged_over_heads(name: str, sight: Sight) -> None:
    expected = full_attention(sight)[:, -1, VISUAL].mean(0)

    torch.testing.assert_close(CRITERIA[name].score(sight), expected)


def test_instruction_averages_over_the_text_behind_the_pictures(sight: Sight) -> None:
    expected = full_attention(sight)[:, 12:, VISUAL].mean((0, 1))

    torch.testing.assert_close(CRITERIA["instruction"].score(sight), expected)


def test_instruction_looks_at_the_last_token_when_no_text_follows(sight: Sight) -> None:
    pictures_last = replace(sight, prompt=prompt(LENGTH, [18, 19]))

    expected = full_attention(sight)[:, -1, [18, 19]].mean(0)
    torch.testing.assert_close(CRITERIA["instruction"].score(pictures_last), expected)


def test_debiased_is_told_of_no_positions() -> None:
    assert not CRITERIA["debiased"].rotary
    assert CRITERIA["last"].rotary


def test_diverse_keeps_one_of_many_that_are_alike() -> None:
    """Twenty tokens that are all but the same, and one that is not."""
    generator = torch.Generator().manual_seed(0)
    visual = list(range(21))
    keys = torch.randn(1, KV_HEADS, SIZE, generator=generator).repeat(22, 1, 1)
    keys += 0.01 * torch.randn(keys.shape, generator=generator)
    keys[7] = -0.5 * keys[7]  # short, so that it is not one of those the others are compared with
    whole = prompt(22, visual, keep=10 / 21)

    kept = choose(CRITERIA["diverse"].score(Sight(whole, keys, keys, 1.0)), whole)

    assert 7 in kept
    assert len(kept) == 10


def test_random_depends_on_the_prompt_alone(sight: Sight) -> None:
    again = replace(sight, keys=sight.keys + 1)
    other = replace(sight, prompt=replace(sight.prompt, seed=1))

    score = CRITERIA["random"].score
    assert torch.equal(score(sight), score(again))
    assert not torch.equal(score(sight), score(other))


@pytest.mark.parametrize("name", ["last", "instruction", "debiased", "diverse"])
def test_ranks_that_share_the_heads_come_to_the_same_scores(name: str, sight: Sight) -> None:
    """Two ranks with half of the heads each; what the other adds is worked out beforehand."""
    halves = [
        replace(sight, queries=sight.queries[:, i * 2 : i * 2 + 2], keys=sight.keys[:, i : i + 1], ranks=2)
        for i in range(2)
    ]
    sums: list[list[Tensor]] = [[], []]

    def score(rank: int, others: list[Tensor]) -> Tensor:
        def add(own: Tensor) -> Tensor:
            sums[rank].append(own)
            return own + others[len(sums[rank]) - 1] if len(others) >= len(sums[rank]) else own

        sums[rank].clear()
        return CRITERIA[name].score(replace(halves[rank], sum_ranks=add))

    # The first sum of a rank depends on its own heads only, the second on the first: settle them in turn.
    for _ in range(3):
        first, second = score(0, list(sums[1])), score(1, list(sums[0]))

    torch.testing.assert_close(first, CRITERIA[name].score(sight))
    torch.testing.assert_close(second, first)


def test_the_best_of_each_group_stay() -> None:
    scores = torch.tensor([0.1, 0.9, 0.2, 0.8, 0.7, 0.6, 0.5])

    over_all = choose(scores, prompt(LENGTH, *PICTURES, keep=3 / 7))
    each = choose(scores, prompt(LENGTH, *PICTURES, keep=0.25, per_image=True))

    assert sorted(over_all.tolist()) == [1, 3, 4]
    assert sorted(each.tolist()) == [1, 4]
