"""Engine runs that several tests look at are made once a session."""

from collections.abc import Callable

import pytest

from tests.conftest import Checkpoints
from tests.engine.client import EngineWorker
from tests.engine.jobs import Job, Outcome
from tests.engine.scenarios import MAX_TOKENS, mixed_batch, speculative_config
from tests.small_disk import small_disk

__all__ = ["small_disk"]

EngineRun = Callable[[str, str, str], Outcome]


@pytest.fixture(scope="session")
def engine_run(tiny: Checkpoints, engine_workers: Callable[[str], EngineWorker]) -> EngineRun:
    """Runs a family's mixed batch: runner, family and method (`none` for drafting off) give its outcome."""
    outcomes: dict[tuple[str, str, str], Outcome] = {}

    def run(runner: str, family: str, method: str) -> Outcome:
        key = (runner, family, method)
        if key not in outcomes:
            job = Job(
                model=str(tiny[family]),
                requests=mixed_batch(family),
                speculative=speculative_config(method, tiny),
                # Without drafting, plain vLLM is what the drafting engines are compared with.
                engine={} if method == "none" else {"additional_config": {"mmspec": {}}},
                max_tokens=MAX_TOKENS,
            )
            outcomes[key] = engine_workers(runner).run(job)
        return outcomes[key]

    return run
