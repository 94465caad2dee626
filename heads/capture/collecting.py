"""From answered conversations to the store: states in groups that bound the spool, features once a picture."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Protocol

import torch

from mmspec.errors import MmspecError
from mmspec.heads.capture.answering import Dialogue
from mmspec.heads.capture.conversations import Skipped
from mmspec.heads.capture.samples import convert, features_bytes, make_sample, needed_bytes
from mmspec.heads.capture.sequences import Answered, Prompt, States
from mmspec.heads.capture.store import CaptureStore, Sample
from mmspec.heads.capture.target import CaptureTarget


class ExtractingEngine(Protocol):
    """What `CaptureEngine` offers here."""

    def extract(self, sequences: Sequence[Prompt]) -> Iterator[States]: ...

    def features(self, key: str) -> torch.Tensor: ...

    def forget_features(self, key: str) -> None: ...


class Collector:
    """Puts conversations into a store as long as they fit."""

    def __init__(
        self,
        engine: ExtractingEngine,
        store: CaptureStore,
        target: CaptureTarget,
        dtype: str,
        group_bytes: int,
        skip: Callable[[Skipped], None],
    ) -> None:
        self._engine, self._store, self._target = engine, store, target
        self._dtype, self._group_bytes, self._skip = dtype, group_bytes, skip

    def collect(self, dialogues: Sequence[Dialogue]) -> bool:
        """Whether all of them fitted.

        Raises:
            MmspecError: not even the first one fits into an empty store.
        """
        group: list[Dialogue] = []
        size = 0
        spooled = self._features_bytes(dialogues)  # they are all encoded by now
        for dialogue in dialogues:
            need = needed_bytes(dialogue.answered, self._target, self._dtype)
            if group and size + need > self._group_bytes:
                self._collect_group(group)
                group, size = [], 0
            if not self._store.fits(size + need + spooled):
                self._collect_group(group)
                self._store.require_some(need + spooled)
                return False
            group.append(dialogue)
            size += need
        self._collect_group(group)
        return True

    def _collect_group(self, dialogues: list[Dialogue]) -> None:
        sequences = [answered.prompt for dialogue in dialogues for answered in dialogue.answered]
        if not sequences:
            return
        states = self._engine.extract(sequences)
        for dialogue in dialogues:
            # Taken even if the conversation is skipped: the states of the next one come behind.
            taken = list(islice(states, len(dialogue.answered)))
            try:
                features = self._new_features(dialogue.answered)
                samples = self._samples(dialogue, taken)
            except MmspecError as error:
                self._skip(Skipped(dialogue.conversation.line, str(error)))
                continue
            self._store.add(samples, features)
        for key in {key for sequence in sequences for key in sequence.picture_keys}:
            if self._store.has_features(key):
                self._engine.forget_features(key)

    def _features_bytes(self, dialogues: Sequence[Dialogue]) -> int:
        prompts = (answered.prompt for dialogue in dialogues for answered in dialogue.answered)
        return sum(features_bytes(prompt, self._target, self._dtype) for prompt in prompts)

    def _samples(self, dialogue: Dialogue, states: list[States]) -> list[Sample]:
        return [
            make_sample(dialogue.conversation, part, answered, of_it, self._dtype)
            for part, (answered, of_it) in enumerate(zip(dialogue.answered, states, strict=True))
        ]

    def _new_features(self, answered: Sequence[Answered]) -> dict[str, torch.Tensor]:
        keys = {key for sequence in answered for key in sequence.prompt.picture_keys}
        return {
            key: convert(self._engine.features(key), self._dtype)
            for key in sorted(keys)
            if not self._store.has_features(key)
        }
