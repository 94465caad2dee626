"""Statistics of requests that end at a stop string, have several answers, or meet others."""

from pathlib import Path
from typing import Any

import pytest

from tests.serve.conftest import last_json

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def found(tiny_vlm: Path) -> dict[str, Any]:
    return last_json("-m", "tests.serve.reports", str(tiny_vlm), VLLM_ENABLE_V1_MULTIPROCESSING="0")


def test_a_request_that_ends_at_a_stop_string_is_reported_like_others(found: dict[str, Any]) -> None:
    assert found["stopped_early"]
    assert found["whole"]["encoder_cache"] == {"hits": 0, "misses": 1, "tier": None}
    assert found["stopped"]["visual_tokens"] == found["whole"]["visual_tokens"] == {"seen": 12, "kept": 12}
    assert found["stopped"]["encoder_cache"]["hits"] == 1
    assert found["whole"]["drafts"] > 0


def test_several_answers_to_one_prompt_do_not_pretend_to_know_the_cache(found: dict[str, Any]) -> None:
    assert found["several"]["encoder_cache"] == {"hits": None, "misses": None, "tier": None}
    assert found["several"]["visual_tokens"] == {"seen": 12, "kept": 12}


def test_a_stream_beside_other_requests_is_refused_with_one_line(found: dict[str, Any]) -> None:
    assert "one conversation at a time" in found["refusal"]
