"""Measurements: what is asked, how answers are compared, what is kept with a result."""

import json
from pathlib import Path

import pytest
from PIL import Image

from mmspec import MmspecError
from mmspec.bench.lossless import Mismatch, _Answer, _differences, compare
from mmspec.bench.prompts import Prompt, example_prompts, scene_prompts
from mmspec.bench.provenance import write_result


def answer(*token_ids: int) -> _Answer:
    return _Answer(list(token_ids), "".join(map(str, token_ids)), drafts=0, accepted_tokens=0)


def test_equal_answers_have_no_difference() -> None:
    assert _differences("ngram", [Prompt("p", {}, "q")], [answer(1, 2)], [answer(1, 2)]) == []


@pytest.mark.parametrize(("drafted", "position"), [((1, 3), 1), ((1,), 1), ((1, 2, 3), 2), ((5, 2), 0)])
def test_a_difference_names_the_first_token_that_differs(drafted: tuple[int, ...], position: int) -> None:
    found = _differences("ngram", [Prompt("p", {}, "q")], [answer(1, 2)], [answer(*drafted)])

    assert found == [Mismatch("ngram", "p", position, "12", "".join(map(str, drafted)))]


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(MmspecError, match="nothing to compare"):
        compare("model", [], [], max_tokens=1)


def test_examples_are_read_with_their_questions(tmp_path: Path) -> None:
    Image.new("RGB", (40, 30), "red").save(tmp_path / "red.png")
    examples = [{"image": "red.png", "question": "What colour?", "answer": "Red."}]
    (tmp_path / "examples.json").write_text(json.dumps(examples))

    (prompt,) = example_prompts(tmp_path)

    assert prompt.name == "red: What colour?"
    assert [part["type"] for part in prompt.messages()[0]["content"]] == ["image_url", "text"]


def test_scenes_are_the_same_every_time() -> None:
    first, second = scene_prompts(4), scene_prompts(4)

    assert first == second
    assert len({prompt.picture["image_url"]["url"] for prompt in first}) == 4


def test_a_result_is_kept_with_what_made_it(tmp_path: Path) -> None:
    path = tmp_path / "results" / "lossless.json"

    write_result(path, {"identical": True})

    kept = json.loads(path.read_text())
    assert kept["result"] == {"identical": True}
    assert kept["provenance"]["versions"]["mmspec"]
    assert {"command", "revision", "machine", "time"} <= set(kept["provenance"])
    assert list(path.parent.iterdir()) == [path]
