"""What a question names, and what the model should know about it by the end of its name."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mmspec.encoders.pocket.kinds import KINDS
from mmspec.encoders.pocket.scenes import Scene

MANY = -1  # the row and column of what is not alone of its kind
_KINDS_BY_FORM = {form: kind for kind in KINDS for form in (kind.name, kind.plural)}
_EVERYTHING = "objects"
_FORMS = re.compile(rf"\b({'|'.join(sorted([*_KINDS_BY_FORM, _EVERYTHING], key=len, reverse=True))})\b")


@dataclass(frozen=True)
class Mention:
    """One kind of object, or all objects, named in a question.

    Attributes:
        last: index of the name's last character in the question.
        count: how many of them the picture shows.
        row: the zone of the only one, else `MANY`.
        column: likewise.
    """

    last: int
    count: int
    row: int = MANY
    column: int = MANY


def mentions(question: str, scene: Scene) -> Iterator[Mention]:
    """Every kind that a question names, in order."""
    for match in _FORMS.finditer(question):
        kind = _KINDS_BY_FORM.get(match[0])
        named = [thing for thing in scene.things if kind in (thing.kind, None)]
        if kind is not None and len(named) == 1:
            yield Mention(match.end() - 1, 1, named[0].row, named[0].column)
        else:
            yield Mention(match.end() - 1, len(named))
