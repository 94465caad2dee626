"""The tiny checkpoints are what the other tests take them for; that they load in vLLM is seen in `tests/engine`."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL.Image import Image
from safetensors.torch import load_file

from tests.conftest import Checkpoints
from tests.engine.scenarios import chat
from tests.oracle import Oracle
from tests.tiny import build_checkpoint
from tests.tiny.tokenizer import said_tokens

ARCHITECTURES = {
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
    "llava": "LlavaForConditionalGeneration",
}
QUESTION = "What is in the picture?"


def test_target_is_small_and_of_the_real_architecture(
    family: str, tiny: Checkpoints, oracles: Callable[[str], Oracle]
) -> None:
    assert type(oracles(family).model).__name__ == ARCHITECTURES[family]
    assert sum(file.stat().st_size for file in tiny[family].iterdir()) < 5e6


def test_every_picture_and_question_changes_the_answer(
    family: str, oracles: Callable[[str], Oracle], pictures: dict[str, Image]
) -> None:
    oracle = oracles(family)
    asked = [
        (),
        ("red_square",),
        ("blue_disc",),
        ("stripes",),
        ("red_square", "blue_disc"),
        ("blue_disc", "red_square"),
    ]
    answers = [
        oracle.greedy(oracle.prompt(chat(family, question, names).text, [pictures[n] for n in names]), 12)
        for question, images in ((QUESTION, asked), ("How many apples?", asked[:2]))
        for names in images
    ]
    assert len({tuple(answer) for answer in answers}) == len(answers)
    assert all(set(answer) <= set(said_tokens()) for answer in answers)
    assert len(set().union(*answers)) >= 8


def test_chat_template_renders_what_the_engine_tests_send(
    family: str, oracles: Callable[[str], Oracle]
) -> None:
    content = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": QUESTION}]
    rendered = oracles(family).processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
    )
    assert rendered.replace(f"{QUESTION}  ", f"{QUESTION} ") == chat(family, QUESTION, ("a", "b")).text


@pytest.mark.parametrize("name", ["llava", "llama", "eagle3"])
def test_building_again_gives_the_same_weights(name: str, tiny: Checkpoints, tmp_path: Path) -> None:
    again = build_checkpoint(name, tmp_path / name)
    first, second = (load_file(folder / "model.safetensors") for folder in (tiny[name], again))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("name", ["eagle3", "eagle3_speculators"])
def test_head_can_draft_all_that_a_target_says(name: str, tiny: Checkpoints) -> None:
    weights = load_file(tiny[name] / "model.safetensors")
    drafted = torch.arange(len(weights["d2t"])) + weights["d2t"]  # target ids of the reduced vocabulary
    assert set(said_tokens()) < set(drafted.tolist())
    assert weights["t2d"].nonzero().flatten().tolist() == drafted.tolist()
