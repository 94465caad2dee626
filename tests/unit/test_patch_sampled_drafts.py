"""Spreading a request's sampling settings over its drafted tokens."""

import pytest
import torch

from mmspec.patches.sampled_drafts import spread


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int64])
def test_each_token_gets_its_requests_value(dtype: torch.dtype) -> None:
    values = torch.tensor([0, 7, 3, 5], dtype=dtype)
    ends = torch.tensor([2, 2, 5, 6], dtype=torch.int32)  # the second request drafted nothing
    spread_out = spread(values, ends, 6, replace_from=0, replace_to=1)
    assert spread_out.dtype == dtype
    assert spread_out.tolist() == [1, 1, 3, 3, 3, 5]


def test_fractions_survive() -> None:
    assert spread(torch.tensor([0.7]), torch.tensor([3]), 3, 0, 1).tolist() == pytest.approx([0.7] * 3)
