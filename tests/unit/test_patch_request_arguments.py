"""Names in a request's extra arguments: ours, other people's, and ours misspelt."""

from types import SimpleNamespace

import pytest

from mmspec import MmspecError
from mmspec.patches.request_arguments import refuse_misspelt


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("mmspec_stat", "did you mean 'mmspec_stats'"),
        ("mmspec_drafts", "did you mean 'mmspec_draft'"),
        ("MMSpec-Stats", "did you mean 'mmspec_stats'"),
        ("mspec_stats", "did you mean 'mmspec_stats'"),
        ("spec_draft", "did you mean 'mmspec_draft'"),
        ("mmspec", "mmspec_stats"),
        ("mmspec_zzz", "mmspec_stats"),
        ("fastv_kep", "did you mean 'fastv_keep'"),
        ("fast_keep", "did you mean 'fastv_keep'"),
        ("fastv-keep", "did you mean 'fastv_keep'"),
        ("FastV_Keep", "did you mean 'fastv_keep'"),
        ("fastv_keep_token", "did you mean 'fastv_keep_tokens'"),
        ("fastv", "did you mean 'fastv_keep'"),
        ("fastv_proportion", "fastv_keep"),
    ],
)
def test_a_misspelt_name_is_refused(name: str, meant: str) -> None:
    with pytest.raises(MmspecError, match=f"^{name}: unknown argument of a request; .*{meant}"):
        refuse_misspelt(SimpleNamespace(extra_args={name: 0.5}))


@pytest.mark.parametrize(
    "name", ["mmspec_stats", "mmspec_draft", "fastv_keep", "fastv_keep_tokens", "fastv_tell"]
)
def test_ours_pass(name: str) -> None:
    refuse_misspelt(SimpleNamespace(extra_args={name: True}))


@pytest.mark.parametrize("name", ["kv_transfer_params", "keep", "top_k", "min_tokens", "stats", "speed", ""])
def test_names_of_others_pass(name: str) -> None:
    refuse_misspelt(SimpleNamespace(extra_args={name: 0.5}))


def test_requests_without_extra_arguments_pass() -> None:
    refuse_misspelt(SimpleNamespace(extra_args=None))
    refuse_misspelt(SimpleNamespace())  # parameters of another kind of request
