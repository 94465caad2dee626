"""Which visual tokens of a prompt were kept, told by workers to whoever asked for it with the request.

The user's side asks by a name of its own in the request's extra arguments, `fastv_tell`, and fetches the answer by that
name once the request is done. Nothing is waited for on the device before that.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from mmspec.encoders.fastv.prompt import Prompt

_MOST = 256  # answers that nobody came for, as the requests were aborted, make way for new ones

Told = list[dict[str, Any]]
"""For each picture, how many visual tokens it has (`seen`), and which of them, counted from 0, stayed (`kept`)."""


class Notes:
    """What a worker has to tell."""

    def __init__(self) -> None:
        self._notes: OrderedDict[str, tuple[Prompt, Tensor]] = OrderedDict()

    def put(self, prompt: Prompt, stays: Tensor) -> None:
        """Notes the indices in the prompt of the visual tokens that stay."""
        if prompt.tell is None:
            return
        self._notes[prompt.tell] = prompt, stays
        if len(self._notes) > _MOST:
            self._notes.popitem(last=False)

    def take(self, name: str) -> Told | None:
        """What was noted under a name, once; None when nothing was."""
        if (noted := self._notes.pop(name, None)) is None:
            return None
        prompt, stays = noted
        return picture_by_picture(prompt, stays.tolist())


def picture_by_picture(prompt: Prompt, stays: Sequence[int]) -> Told:
    """The kept tokens of each picture, from their indices in the prompt."""
    return [
        {"seen": len(flags), "kept": [place for place, stayed in enumerate(flags) if stayed]}
        for flags in flags_of(prompt, stays)
    ]


def flags_of(prompt: Prompt, stays: Sequence[int]) -> list[list[bool]]:
    """For each picture, whether each of its tokens is among those that stay."""
    kept = set(stays)
    return [[index in kept for index in picture.tolist()] for picture in prompt.pictures]


class TellingWorker:
    """Extends vLLM's workers (`worker_extension_cls`) by the call that fetches what was noted."""

    def mmspec_kept(self, name: str) -> Told | None:
        from mmspec.encoders.fastv.pruner import pruner_of

        pruner = pruner_of(self.get_model())  # type: ignore[attr-defined]
        return None if pruner is None else pruner.notes.take(name)
