"""Drafting changes no greedy token, for each method, with pictures and without, on both model runners."""

import pytest

from tests.engine.conftest import EngineRun
from tests.engine.scenarios import METHODS, REFUSED_BY_V2, missing_package

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.mark.parametrize("method", METHODS)
def test_drafting_is_lossless(runner: str, family: str, method: str, engine_run: EngineRun) -> None:
    if reason := missing_package(method):
        pytest.skip(reason)
    outcome = engine_run(runner, family, method)
    if runner == "v2" and method in REFUSED_BY_V2:
        assert REFUSED_BY_V2[method] in str(outcome.error)
        return

    assert outcome.tokens == engine_run(runner, family, "none").tokens
    assert outcome.runner == runner
    assert all(answer.drafted for answer in outcome.answers), "nothing was drafted, so nothing was tested"
    assert any(sum(answer.accepted) for answer in outcome.answers), "no draft was ever accepted"
