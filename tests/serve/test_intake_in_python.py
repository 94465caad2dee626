"""The intake through `mmspec.LLM`: notes with every output, refusals in one line, no effect on vLLM's own engines."""

from typing import Any

import numpy as np
import pytest

from tests.odd_pictures import odd_pictures
from tests.serve.conftest import last_json
from tests.serve.doors import RIGHT
from tests.tiny import build_checkpoint

pytestmark = [pytest.mark.engine, pytest.mark.slow]

PLACEHOLDERS = {"qwen2_5_vl": "<|vision_start|><|image_pad|><|vision_end|>", "llava": "<image>"}
GREY = "16-bit grey from 0 to 65535 scaled to 8 bits"
TURNED = "turned by 90° clockwise, as its EXIF orientation 6 says"


@pytest.fixture(scope="module", params=list(PLACEHOLDERS))
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    family: str = request.param
    model = build_checkpoint(family, tmp_path_factory.mktemp("intake") / family)
    command = ("-m", "tests.serve.intake_in_python", str(model), PLACEHOLDERS[family])
    return last_json(*command, timeout=1200, VLLM_ENABLE_V1_MULTIPROCESSING="0")


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two answers are about the same prompt with the same pictures."""
    return one["prompt"] == other["prompt"] and np.allclose(one["likely"], other["likely"], atol=1e-3)


def test_each_output_has_the_notes_about_its_own_pictures(found: dict[str, Any]) -> None:
    assert [one["notes"] for one in found["chat"]] == [
        [],
        [f"picture 2: {GREY}"],
        [f"picture 1: {TURNED}"],
        [],
    ]
    assert found["streamed"] == [f"picture 1: {GREY}"]
    assert found["enqueued"] == [[], [f"picture 1: {TURNED}"]]
    assert found["generated"] == [[f"picture 1: {TURNED}"], []]


def test_the_answer_is_that_of_the_upright_picture(found: dict[str, Any]) -> None:
    turned, right, lying = found["chat"][2], found["right"], found["chat"][0]

    assert same(turned, right)
    assert right["notes"] == []
    assert not same(turned, lying)
    assert same(found["in memory"], turned)
    assert found["in memory"]["notes"] == turned["notes"]


def test_what_is_no_picture_is_refused_in_one_line_and_the_engine_lives(found: dict[str, Any]) -> None:
    assert found["refused"].startswith("picture 2: not a picture; give a PNG")
    assert found["refused stream"].startswith("picture 1: the file is empty")
    assert found["refused in memory"].startswith("picture 1: broken (image file is truncated")
    assert same(found["after"], found["chat"][0])


def test_a_placeholder_that_was_typed_is_text(found: dict[str, Any]) -> None:
    typed, as_text = found["typed"], found["as text"]

    assert same(typed, as_text)
    assert [note.endswith("was typed, and stays text") for note in typed["notes"]] == [True]
    assert as_text["notes"] == []


def test_vllm_alone_gives_the_picture_to_the_placeholder_that_was_typed(found: dict[str, Any]) -> None:
    """vLLM issue 57740: when this fails, `mmspec.encoders.intake.placeholders` may go."""
    assert not same(found["stock typed"], found["stock as text"])
    assert same(found["stock as text"], found["as text"])


def test_an_engine_of_vllm_in_the_same_process_has_no_intake(found: dict[str, Any]) -> None:
    assert found["stock"] == "NotImplementedError"


@pytest.mark.parametrize("door", ["python", "chat"])
def test_every_odd_picture_is_right_or_refused_in_one_line(found: dict[str, Any], door: str) -> None:
    """By the pixels that vLLM is handed; test_intake has the same pictures over HTTP."""
    pictures = {odd.name: odd for odd in odd_pictures()}
    assert found["doors"].keys() == pictures.keys()

    taken = {name for name, odd in pictures.items() if odd.expected is not None}
    assert {name for name, result in found["doors"].items() if result[door] == RIGHT} == taken
    for name in pictures.keys() - taken:
        line = found["doors"][name][door]
        assert "picture" in line and pictures[name].refused in line and "; " in line
        assert door == "python" or line.startswith("exit 2: mmspec: picture ")
