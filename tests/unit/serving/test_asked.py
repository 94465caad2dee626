"""What a request may ask of mmspec, and what is refused."""

from types import SimpleNamespace
from typing import Any

import pytest

from mmspec import MmspecError
from mmspec.serving.asked import Asked, asked_statistics, require_answerable, settled, wants_drafts

OURS = "mmspec.scheduler.build_asked_scheduler"


@pytest.mark.parametrize(
    ("value", "asked"),
    [
        (None, None),
        (False, None),
        (0, None),
        (True, Asked()),
        (1, Asked()),
        ([], Asked()),
        ("tokens", Asked(tokens=True)),
        (["kept", "tokens"], Asked(tokens=True, kept=True)),
    ],
)
def test_statistics_are_asked_for(value: Any, asked: Asked | None) -> None:
    assert asked_statistics({"mmspec_stats": value}) == asked


@pytest.mark.parametrize("value", ["all", 2, ["tokens", "all"], {"tokens": True}, [["kept"]]])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(MmspecError, match="give true, or a list of tokens and kept"):
        asked_statistics({"mmspec_stats": value})


def test_drafting_is_on_unless_declined() -> None:
    assert all(wants_drafts(arguments) for arguments in (None, {}, {"mmspec_draft": True}))
    assert not wants_drafts({"mmspec_draft": False}) and not wants_drafts({"mmspec_draft": 0})
    with pytest.raises(MmspecError, match="give true or false"):
        wants_drafts({"mmspec_draft": "no"})


def params(n: int = 1, **arguments: Any) -> Any:
    return SimpleNamespace(n=n, extra_args=arguments)


def test_what_an_engine_cannot_give_is_refused() -> None:
    for scheduler in (None, "my.Scheduler"):
        require_answerable(params(), scheduler)
        require_answerable(SimpleNamespace(), scheduler)
        for asking in (params(mmspec_stats=True), params(mmspec_draft=False)):
            require_answerable(asking, OURS)
            with pytest.raises(MmspecError, match="without mmspec's scheduler"):
                require_answerable(asking, scheduler)


def test_tokens_are_told_of_one_answer_only() -> None:
    require_answerable(params(n=2, mmspec_stats="kept"), OURS)
    with pytest.raises(MmspecError, match="leave n at 1"):
        require_answerable(params(n=2, mmspec_stats="tokens"), OURS)


def test_an_engine_takes_what_got_past_the_checks_for_nothing() -> None:
    assert settled({"mmspec_stats": "nonsense", "mmspec_draft": False}) == (None, True)
    assert settled({"mmspec_stats": "kept", "mmspec_draft": False}) == (Asked(kept=True), False)
    assert settled(None) == (None, True)
