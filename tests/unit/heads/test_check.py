"""A good head fits; spoilt in one thing, it does not, and one line says so."""

import re

import pytest

from mmspec.errors import MmspecError
from mmspec.heads.check import check_head, require_fit
from tests.conftest import Checkpoints
from tests.unit.heads.conftest import Pair
from tests.unit.heads.spoilt import FATAL, NOTES


@pytest.mark.parametrize("head", ["eagle3", "eagle3_speculators"])
def test_a_good_head_fits(head: str, family: str, tiny: Checkpoints) -> None:
    found = check_head(tiny[head], tiny[family])

    # vLLM's own choice of layers starts among those that Qwen3-VL adds features to.
    expected = ["layers"] if family == "qwen3_vl" else []
    assert [mismatch.aspect for mismatch in found] == expected
    assert not any(mismatch.fatal for mismatch in found)
    require_fit(tiny[head], tiny[family])


@pytest.mark.parametrize("case", FATAL)
def test_a_head_spoilt_in_one_thing_does_not_fit(case: str, pair: Pair) -> None:
    spoil, pattern = FATAL[case]
    spoil(pair)

    found = check_head(pair.head, pair.target)

    assert [mismatch.fatal for mismatch in found] == [True], [str(mismatch) for mismatch in found]
    assert_line(str(found[0]), pattern)
    with pytest.raises(MmspecError, match="does not fit") as caught:
        require_fit(pair.head, pair.target)
    assert str(found[0]) in str(caught.value)


@pytest.mark.parametrize("case", NOTES)
def test_what_only_costs_acceptance_is_a_note(case: str, pair: Pair) -> None:
    spoil, pattern = NOTES[case]
    spoil(pair)

    found = check_head(pair.head, pair.target)

    assert [mismatch.fatal for mismatch in found] == [False], [str(mismatch) for mismatch in found]
    assert_line(str(found[0]), pattern)
    require_fit(pair.head, pair.target)


def assert_line(line: str, pattern: str) -> None:
    """One line that says what is wrong, and then what to do."""
    problem, _, mend = line.partition("; ")
    assert len(line.splitlines()) == 1
    assert problem and mend
    assert re.search(pattern, line), line
