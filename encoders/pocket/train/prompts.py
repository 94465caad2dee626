"""Prompts from which a draft head for the pocket VLM learns: conversations about scenes, and plain text.

Writes `prompts.jsonl` and the pictures that it names, for `mmspec head capture --all-turns`.
"""

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmspec.encoders.pocket.base import load_language_model, load_tokenizer
from mmspec.encoders.pocket.questions import CAPTION_REQUESTS, ask
from mmspec.encoders.pocket.scenes import Scene, make_scene
from mmspec.encoders.pocket.train.manners import user_turns

_FIRST_SEED = 600_000_000  # below the held-out scenes; the reader's training ends at 500,000,000
_CAPTIONS = 0.5  # share of conversations that ask for a description; the others ask two questions
_FOLLOW_UPS = 0.5  # share of conversations with a second turn


def conversation(scene: Scene, rng: random.Random) -> list[str]:
    """What a user says about a scene, turn by turn."""
    questions = [question.text for question in ask(scene, rng)]
    rng.shuffle(questions)
    if rng.random() < _CAPTIONS:
        questions.insert(0, rng.choice(CAPTION_REQUESTS))
    return questions[: 2 if rng.random() < _FOLLOW_UPS else 1]


def scene_lines(scenes: int, folder: Path) -> Iterator[dict[str, Any]]:
    """One conversation a scene; its picture is written to `folder / "pictures"`."""
    pictures = folder / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    for number in range(scenes):
        scene = make_scene(_FIRST_SEED + number)
        path = pictures / f"{scene.seed}.png"
        if not path.exists():
            scene.draw().save(path)
        turns = conversation(scene, random.Random(scene.seed))
        yield {
            "image": str(path.relative_to(folder)),
            "messages": [{"role": "user", "content": turn} for turn in turns],
        }


def text_lines(texts: int) -> Iterator[dict[str, Any]]:
    """Messages without a picture, as the language model itself imagines users."""
    for text in user_turns(texts, load_language_model(), load_tokenizer()):
        yield {"messages": [{"role": "user", "content": text}]}


def write(folder: Path, scenes: int, texts: int) -> Path:
    lines = [*scene_lines(scenes, folder), *text_lines(texts)]
    random.Random(0).shuffle(lines)
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scenes", type=int, default=3000)
    parser.add_argument("--texts", type=int, default=300)
    given = parser.parse_args()
    print(write(given.folder, given.scenes, given.texts))
