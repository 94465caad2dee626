"""Scores the pocket VLM on held-out scenes: is it right, does it look, and does it still know its English."""

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from mmspec.encoders.pocket.questions import (
    CAPTION_REQUESTS,
    QUESTION_KINDS,
    Question,
    ask_one,
    caption,
    objects_named,
)
from mmspec.encoders.pocket.scenes import HELD_OUT_SEED, Scene, make_scene

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

Answerer = Callable[[list[tuple[Image.Image, str]], int], list[str]]
"""Answers questions about pictures, greedily, with at most so many tokens each."""

_QUESTIONS_A_SCENE = 3
_ANSWER_TOKENS = 32
_CAPTION_TOKENS = 160
_ENGLISH = Path(__file__).with_name("english.txt")


@dataclass(frozen=True)
class Scores:
    """What `mmspec pocket eval` reports; every figure but the counts and the ratio is a share.

    Attributes:
        accuracy: questions answered right.
        object_recall: kinds of object in a scene that its caption names.
        object_precision: kinds of object that captions name and the scene has.
        shuffled_accuracy: questions answered right when each is asked about another scene's picture.
        chance_accuracy: what always giving the commonest answer to each kind of question would score.
        text_perplexity_ratio: on plain English, against the language model that it was made from.
    """

    accuracy: float
    accuracy_by_kind: dict[str, float]
    object_recall: float
    object_precision: float
    shuffled_accuracy: float | None
    chance_accuracy: float
    text_perplexity_ratio: float | None
    scenes: int
    questions: int

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def evaluate(
    answer: Answerer, scenes: int, perplexity_ratio: float | None, *, shuffled: bool = True
) -> Scores:
    """Asks about `scenes` held-out scenes, with their own pictures and, where `shuffled`, with others'."""
    held_out = [make_scene(HELD_OUT_SEED + index) for index in range(scenes)]
    asked = [
        (scene, question) for index, scene in enumerate(held_out) for question in _questions(index, scene)
    ]
    right = _right(answer, [scene.draw() for scene, _ in asked], asked)
    by_kind: dict[str, list[bool]] = defaultdict(list)
    for (_, question), is_right in zip(asked, right, strict=True):
        by_kind[question.kind].append(is_right)
    once = asked[::_QUESTIONS_A_SCENE]
    recall, precision = _captions(answer, held_out)
    return Scores(
        accuracy=_share(right),
        accuracy_by_kind={kind: _share(by_kind[kind]) for kind in QUESTION_KINDS if kind in by_kind},
        object_recall=recall,
        object_precision=precision,
        shuffled_accuracy=_share(_right(answer, _others(once), once)) if shuffled else None,
        chance_accuracy=_chance([question for _, question in once]),
        text_perplexity_ratio=perplexity_ratio,
        scenes=scenes,
        questions=len(asked),
    )


def text_perplexity_ratio(checkpoint: Path) -> float:
    """Perplexity on plain English of the checkpoint's language model over the original's, both in float32."""
    import torch
    from transformers import AutoTokenizer, Qwen2_5_VLForConditionalGeneration

    from mmspec.encoders.pocket.base import load_language_model

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    texts = [text for text in _ENGLISH.read_text().split("\n\n") if text.strip()]
    batches = [tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids for text in texts]
    adapted = Qwen2_5_VLForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32)
    return _perplexity(adapted, batches) / _perplexity(load_language_model(), batches)


def _perplexity(model: "PreTrainedModel", batches: "list[Tensor]") -> float:
    import math

    import torch

    loss, count = 0.0, 0
    with torch.no_grad():
        for ids in batches:
            logits = model(input_ids=ids).logits[0, :-1]
            loss += torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum").item()
            count += ids.shape[1] - 1
    return math.exp(loss / count)


def _questions(index: int, scene: Scene) -> list[Question]:
    """As many questions as every scene gets, of kinds that take turns; a kind that does not fit is passed over."""
    rng = random.Random(scene.seed)
    turns = (
        QUESTION_KINDS[(index * _QUESTIONS_A_SCENE + i) % len(QUESTION_KINDS)]
        for i in range(len(QUESTION_KINDS))
    )
    fitting = (question for kind in turns if (question := ask_one(kind, scene, rng)) is not None)
    return [next(fitting) for _ in range(_QUESTIONS_A_SCENE)]


def _others(asked: list[tuple[Scene, Question]]) -> list[Image.Image]:
    """For each scene the picture of the next."""
    return [scene.draw() for scene, _ in asked[1:] + asked[:1]]


def _right(answer: Answerer, pictures: list[Image.Image], asked: list[tuple[Scene, Question]]) -> list[bool]:
    prompts = [(picture, question.text) for picture, (_, question) in zip(pictures, asked, strict=True)]
    answers = answer(prompts, _ANSWER_TOKENS)
    return [question.is_right(text) for (_, question), text in zip(asked, answers, strict=True)]


def _captions(answer: Answerer, scenes: list[Scene]) -> tuple[float, float]:
    requests = [(scene.draw(), CAPTION_REQUESTS[scene.seed % len(CAPTION_REQUESTS)]) for scene in scenes]
    there = named = both = 0
    for scene, text in zip(scenes, answer(requests, _CAPTION_TOKENS), strict=True):
        kinds, found = objects_named(caption(scene)), objects_named(text)
        there, named, both = there + len(kinds), named + len(found), both + len(kinds & found)
    return both / there, both / max(1, named)


def _chance(questions: list[Question]) -> float:
    keys: dict[str, list[str]] = defaultdict(list)
    for question in questions:
        keys[question.kind].append(question.key)
    return sum(max(map(found.count, set(found))) for found in keys.values()) / len(questions)


def _share(right: list[bool]) -> float:
    return sum(right) / len(right)
