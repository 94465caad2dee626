"""Fixtures for every test: pictures, tiny checkpoints, engines in this process and in worker processes."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from PIL.Image import Image

from tests.engine.runners import RUNNERS, in_process_environment
from tests.pictures import PICTURES
from tests.tiny import CHECKPOINTS, FAMILIES, build_checkpoint


class Checkpoints(dict[str, Path]):
    """Builds a tiny checkpoint when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, name: str) -> Path:
        self[name] = build_checkpoint(name, self._folder / name)
        return self[name]


@pytest.fixture(scope="session")
def pictures() -> dict[str, Image]:
    return {name: draw() for name, draw in PICTURES.items()}


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    """Folders of the tiny checkpoints by name: a family, `llama`, `eagle3` or `eagle3_speculators`."""
    return Checkpoints(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    assert name in CHECKPOINTS
    return name


@pytest.fixture(scope="session")
def oracles(tiny: Checkpoints) -> Callable[[str], Any]:
    """The transformers oracle of a checkpoint by name; each is loaded once."""
    from tests.oracle import Oracle

    return cache(lambda name: Oracle(tiny[name]))


@pytest.fixture(params=[pytest.param("v1"), pytest.param("v2", marks=pytest.mark.v2)])
def runner(request: pytest.FixtureRequest) -> str:
    """vLLM's model runner: V1, and V2 under Triton's interpreter."""
    name: str = request.param
    assert name in RUNNERS
    return name


@pytest.fixture(scope="session")
def engine_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """The worker process of a runner by name (`tests.engine.client.EngineWorker`), one a session."""
    from tests.engine.client import EngineWorker

    folder = tmp_path_factory.mktemp("engine-logs")
    workers: dict[str, EngineWorker] = {}

    def worker(name: str) -> EngineWorker:
        if name not in workers:
            workers[name] = EngineWorker(name, folder / f"{name}.log")
        return workers[name]

    yield worker
    for started in workers.values():
        started.close()


@pytest.fixture
def vllm_engine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AbstractContextManager[Any]]:
    """`with vllm_engine(model, **arguments) as llm`: a real engine in this process, on the V1 runner."""
    import torch

    from tests.engine.in_process import running_engine

    torch.set_num_threads(1)  # vLLM forbids a later change, and tiny models gain nothing from more
    for name, value in in_process_environment().items():
        monkeypatch.setenv(name, value)
    return running_engine
