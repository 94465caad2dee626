"""Limits as people write them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmspec.encoders.cache import format_size, parse_duration, parse_size
from mmspec.errors import MmspecError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("20GB", 20_000_000_000),
        ("512MiB", 512 * 1024**2),
        (" 1.5 tib ", 3 * 2**39),
        ("64kb", 64_000),
        ("7B", 7),
        (12345, 12345),
    ],
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("20", "has no unit"),
        ("20GiBs", "unknown unit 'GiBs'"),
        ("GB", "is not a size"),
        ("-1GB", "is not a size"),
        ("1e9B", "is not a size"),
        ("", "is not a size"),
        ("٣GB", "is not a size"),
        ("0GB", "less than one byte"),
        (0, "less than one byte"),
        (-5, "less than one byte"),
        (True, "is not a size"),
        (None, "is not a size"),
        (1.5, "is not a size"),
    ],
)
def test_what_is_no_size_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(MmspecError, match=said) as caught:
        parse_size(text, "disk_size")
    assert str(caught.value).startswith("disk_size: ")


@settings(deadline=None)
@given(st.integers(min_value=1, max_value=10**15))
def test_a_shown_size_is_close_and_can_be_read_again(size: int) -> None:
    assert parse_size(format_size(size)) == pytest.approx(size, rel=0.006)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("1.5h", 5400), ("7d", 604800), (5, 5)]
)
def test_durations(text: str | int, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["7", "d", "7w", ""])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(MmspecError, match=r"^remote_ttl: "):
        parse_duration(text, "remote_ttl")
