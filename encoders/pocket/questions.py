"""Questions about scenes, their right answers, and what counts as right."""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from mmspec.encoders.pocket.kinds import COLOURS, KINDS, NUMBERS, Kind
from mmspec.encoders.pocket.scenes import COLUMNS, ROWS, Scene, Thing

CAPTION_REQUESTS = (
    "Describe the picture.",
    "What is in this picture?",
    "What do you see?",
    "Caption this image.",
)
_ASK_FOR_NONE = 0.2  # of counting questions ask for something that is not there


@dataclass(frozen=True)
class Question:
    """One question, its answer in full, and the words that the answer stands or falls by."""

    kind: str
    text: str
    answer: str
    key: str

    def is_right(self, answer: str) -> bool:
        """Whether an answer says the same: it has the key, or a synonym, and no rival of it."""
        words = answer.lower()
        found = {rival for rival, forms in _RIVALS[self.kind].items() if _says(words, forms)}
        return found == {self.key}


def caption(scene: Scene) -> str:
    """The description of a scene, in reading order."""
    seen: set[str] = set()
    lines = [f"The picture shows {_objects(len(scene.things))} on a {scene.colour} background."]
    for thing in scene.things:
        name = f"another {thing.kind.name}" if thing.kind.name in seen else thing.kind.with_article
        seen.add(thing.kind.name)
        lines.append(f"At the {thing.place} there is {name}.")
    totals = [_amount(kind, count) for kind, count in scene.counts.items()]
    verb = "is" if len(scene.things) == 1 else "are"
    lines.append(
        f"In total there {verb} {_join(totals)}, and the rest of the picture is plain {scene.colour}."
    )
    return " ".join(lines)


def ask(scene: Scene, rng: random.Random) -> list[Question]:
    """One question of every kind that the scene allows."""
    asked = (maker(scene, rng) for maker in _MAKERS.values())
    return [question for question in asked if question is not None]


def ask_one(kind: str, scene: Scene, rng: random.Random) -> Question | None:
    """A question of one kind, or None where the scene does not allow it."""
    return _MAKERS[kind](scene, rng)


def objects_named(text: str) -> set[str]:
    """The kinds that a text names, by name or synonym."""
    return {kind.name for kind in KINDS if _says(text.lower(), kind.names)}


def _count(scene: Scene, rng: random.Random) -> Question:
    kind = _absent(scene, rng) if rng.random() < _ASK_FOR_NONE else _countable(scene, rng)
    count = scene.counts[kind]
    text = rng.choice(
        ("How many {} are there?", "How many {} do you see?", "How many {} are in the picture?")
    )
    verb = "is" if count == 1 else "are"
    return Question(
        "count", text.format(kind.plural), f"There {verb} {_amount(kind, count)}.", NUMBERS[count]
    )


def _total(scene: Scene, rng: random.Random) -> Question:
    count = len(scene.things)
    text = rng.choice(("How many objects are there?", "How many objects are in the picture?"))
    verb = "is" if count == 1 else "are"
    return Question("total", text, f"There {verb} {_objects(count)}.", NUMBERS[count])


def _presence(scene: Scene, rng: random.Random) -> Question:
    there = rng.random() < 0.5
    kind = rng.choice(list(scene.counts)) if there else _absent(scene, rng)
    text = rng.choice(("Is there {} in the picture?", "Is there {}?", "Do you see {}?")).format(
        kind.with_article
    )
    answer = f"Yes, there is {kind.with_article}." if there else f"No, there is no {kind.name}."
    return Question("presence", text, answer, "yes" if there else "no")


def _position(scene: Scene, rng: random.Random) -> Question | None:
    thing = _one_of_its_kind(scene, rng)
    if thing is None:
        return None
    text = rng.choice(("Where is the {}?", "In which part of the picture is the {}?")).format(thing.kind.name)
    return Question("position", text, f"The {thing.kind.name} is at the {thing.place}.", thing.place)


def _what_at(scene: Scene, rng: random.Random) -> Question:
    thing = rng.choice(scene.things)
    text = rng.choice(("What is at the {}?", "Which object is at the {}?")).format(thing.place)
    return Question("what_at", text, f"It is {thing.kind.with_article}.", thing.kind.name)


def _relation(scene: Scene, rng: random.Random) -> Question | None:
    single = [thing for thing in scene.things if scene.counts[thing.kind] == 1]
    if len(single) < 2:
        return None
    one, other = rng.sample(single, 2)
    across = one.row == other.row or (one.column != other.column and rng.random() < 0.5)
    before = one.column < other.column if across else one.row < other.row
    words = ("to the left of", "to the right of") if across else ("above", "below")
    true_word, false_word = words if before else words[::-1]
    holds = rng.random() < 0.5
    text = f"Is the {one.kind.name} {true_word if holds else false_word} the {other.kind.name}?"
    start = "Yes" if holds else "No"
    answer = f"{start}, the {one.kind.name} is {true_word} the {other.kind.name}."
    return Question("relation", text, answer, start.lower())


def _background(scene: Scene, rng: random.Random) -> Question:
    text = rng.choice(("What color is the background?", "Which color is the background?"))
    return Question("background", text, f"The background is {scene.colour}.", scene.colour)


_MAKERS: dict[str, Callable[[Scene, random.Random], Question | None]] = {
    "count": _count,
    "total": _total,
    "presence": _presence,
    "position": _position,
    "what_at": _what_at,
    "relation": _relation,
    "background": _background,
}
QUESTION_KINDS = tuple(_MAKERS)

_NUMBER_FORMS: dict[str, tuple[str, ...]] = {
    word: (word, str(value)) for value, word in enumerate(NUMBERS)
} | {
    "no": ("no", "0", "zero", "none"),
    "one": ("one", "1", "a", "an"),
}
_YES_NO: dict[str, tuple[str, ...]] = {"yes": ("yes",), "no": ("no",)}
_RIVALS: dict[str, dict[str, tuple[str, ...]]] = {
    "count": _NUMBER_FORMS,
    "total": _NUMBER_FORMS,
    "presence": _YES_NO,
    "relation": _YES_NO,
    "position": {f"{row} {column}": (f"{row} {column}",) for row in ROWS for column in COLUMNS},
    "what_at": {kind.name: kind.names for kind in KINDS},
    "background": {colour: (colour, "grey") if colour == "gray" else (colour,) for colour in COLOURS},
}


def _says(text: str, forms: tuple[str, ...]) -> bool:
    return re.search(rf"\b({'|'.join(map(re.escape, forms))})\b", text) is not None


def _absent(scene: Scene, rng: random.Random) -> Kind:
    return rng.choice([kind for kind in KINDS if kind not in scene.counts])


def _countable(scene: Scene, rng: random.Random) -> Kind:
    """A kind of the scene, of which there are several for preference."""
    several = [kind for kind, count in scene.counts.items() if count > 1]
    return rng.choice(several or list(scene.counts))


def _one_of_its_kind(scene: Scene, rng: random.Random) -> Thing | None:
    single = [thing for thing in scene.things if scene.counts[thing.kind] == 1]
    return rng.choice(single) if single else None


def _amount(kind: Kind, count: int) -> str:
    return f"{NUMBERS[count]} {kind.name if count == 1 else kind.plural}"


def _objects(count: int) -> str:
    return f"{NUMBERS[count]} object" + ("s" if count != 1 else "")


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
