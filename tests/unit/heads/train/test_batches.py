"""How captured samples become batches, and which tokens a head may say."""

from itertools import islice

import pytest
import torch

from mmspec import MmspecError
from mmspec.heads.train.batches import VISUAL_OFFSET, collate, token_batches
from mmspec.heads.train.vocabulary import draft_vocabulary
from tests.unit.heads.train.test_unroll import make_sample

LENGTHS = [5, 40, 12, 7, 33, 21, 9, 64, 18, 30]


def test_an_epoch_has_every_sample_once_within_the_bound() -> None:
    batches = token_batches(LENGTHS, most_tokens=64, seed=3)
    epoch: list[int] = []
    while len(epoch) < len(LENGTHS):
        batch = next(batches)
        assert len(batch) * max(LENGTHS[i] for i in batch) <= 64
        epoch += batch
    assert sorted(epoch) == list(range(len(LENGTHS)))


def test_the_same_seed_gives_the_same_order_and_epochs_differ() -> None:
    first = list(islice(token_batches(LENGTHS, 64, seed=3), 40))
    assert first == list(islice(token_batches(LENGTHS, 64, seed=3), 40))
    assert first != list(islice(token_batches(LENGTHS, 64, seed=4), 40))


def test_processes_of_a_group_share_an_epoch_out() -> None:
    whole = list(islice(token_batches(LENGTHS, 64, seed=3), 4))
    parts = [list(islice(token_batches(LENGTHS, 64, seed=3, rank=rank, world=2), 2)) for rank in range(2)]
    assert [parts[0][0], parts[1][0], parts[0][1], parts[1][1]] == whole


def test_rows_pair_a_token_with_the_states_before_it() -> None:
    sample = make_sample(length=8, answers=[(4, 8)], seed=1, visual=(1, 3))
    batch = collate([sample, make_sample(5, [(2, 5)], seed=2)], vision=True, mrope=True, dtype=torch.float32)
    ids, features = sample["input_ids"], sample["features"]
    assert ids is not None and features is not None
    assert batch.tokens[0].tolist() == [VISUAL_OFFSET, VISUAL_OFFSET + 1, *ids[3:].tolist()]
    torch.testing.assert_close(batch.features, features)
    assert batch.starts.tolist() == [[False] * 3 + [True] * 3 + [False], [False, True, True] + [False] * 4]
    assert batch.real.sum(-1).tolist() == [7, 4]
    assert batch.positions.shape == (3, 2, 7)
    hidden, last = sample["hidden_states"], sample["last_hidden"]
    assert hidden is not None and last is not None
    torch.testing.assert_close(batch.hidden[0], hidden[:-1])
    torch.testing.assert_close(batch.target[0], last[1:])


def test_the_draft_vocabulary_is_what_the_target_says_most() -> None:
    mask = torch.tensor([False, True, True, True, True, True])
    answer = torch.tensor([8, 5, 5, 9, 5, 9])[mask]
    d2t, t2d, covered = draft_vocabulary([answer], draft_size=1, target_size=12)
    assert (d2t + torch.arange(1)).tolist() == [5]
    assert t2d.nonzero().flatten().tolist() == [5]
    assert covered == pytest.approx(3 / 5)


def test_a_draft_vocabulary_beyond_the_target_is_refused() -> None:
    with pytest.raises(MmspecError, match="at most 12"):
        draft_vocabulary([], draft_size=13, target_size=12)


def test_data_without_answers_is_refused() -> None:
    with pytest.raises(MmspecError, match="no sample has an answer"):
        draft_vocabulary([torch.zeros(0, dtype=torch.long)], draft_size=2, target_size=60)
