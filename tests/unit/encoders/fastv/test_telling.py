"""What a worker tells about kept tokens, to whoever asked by a name."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mmspec.encoders.fastv import telling
from mmspec.encoders.fastv.budget import Budget
from mmspec.encoders.fastv.prompt import Prompt, prunable_prompt
from mmspec.encoders.fastv.pruner import ATTRIBUTE
from mmspec.encoders.fastv.telling import Notes, TellingWorker


def prompt(tell: str | None) -> Prompt:
    """Two pictures: tokens 2 to 5, and 8 and 9."""
    return Prompt("p", 12, (np.arange(2, 6), np.arange(8, 10)), Budget(keep=0.5), tell=tell)


STAYS = torch.tensor([2, 5, 9])
TOLD = [{"seen": 4, "kept": [0, 3]}, {"seen": 2, "kept": [1]}]


def test_what_stays_is_told_picture_by_picture_and_once() -> None:
    notes = Notes()
    notes.put(prompt("x"), STAYS)
    notes.put(prompt(None), STAYS)

    assert notes.take("x") == TOLD
    assert notes.take("x") is None


def test_answers_that_nobody_fetches_make_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "_MOST", 2)
    notes = Notes()
    for name in "abc":
        notes.put(prompt(name), STAYS)

    assert [notes.take(name) is not None for name in "abc"] == [False, True, True]


def test_a_worker_answers_for_its_model() -> None:
    class Worker(TellingWorker):
        model = SimpleNamespace()

        def get_model(self) -> Any:
            return self.model

    worker = Worker()
    assert worker.mmspec_kept("x") is None, "a model that is not pruned"
    notes = Notes()
    setattr(worker.model, ATTRIBUTE, SimpleNamespace(notes=notes))
    notes.put(prompt("x"), STAYS)

    assert worker.mmspec_kept("x") == TOLD


def test_the_name_is_in_the_requests_extra_arguments() -> None:
    place = SimpleNamespace(offset=1, length=4, is_embed=None)
    request = SimpleNamespace(
        req_id="p",
        prompt_token_ids=list(range(8)),
        mm_features=[SimpleNamespace(modality="image", mm_position=place)],
        sampling_params=SimpleNamespace(extra_args={"fastv_keep": 0.5, "fastv_tell": "x"}),
    )

    found = prunable_prompt(request, per_image=False)

    assert found is not None and found.tell == "x"
