"""Two ranks: each has one attention head, and both have the same key-value head. They prune and load alike.

Three processes that wait for each other cost minutes of one core: MMSPEC_LONG_TESTS=1 runs it.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mmspec.encoders.harmless import leaves_weights_alone
from tests.conftest import Checkpoints
from tests.engine.feature_cache import LARGEST, PLACE, QUESTION, Starting, large_picture, prompt_of
from tests.fastv_oracle import FastVOracle
from tests.long import LONG

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    LONG,
]

LAYER, KEEP, TOKENS = 2, 0.5, 8


@pytest.fixture
def free_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM would bind each rank to a core of its own, and this process with them."""
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")


@contextmanager
def two_ranks(start: Starting, model: Path, folder: Path) -> Iterator[Any]:
    options = {"encoder_cache": {"directory": str(folder)}, "fastv": {"layer": LAYER, "keep": KEEP}}
    with start(
        str(model),
        tensor_parallel_size=2,
        distributed_executor_backend="mp",
        additional_config={"mmspec": options},
        max_num_batched_tokens=2 * LARGEST - 1,
        limit_mm_per_prompt={"image": 1, "video": 0},
        max_num_seqs=4,
    ) as llm:
        yield llm


def test_ranks_keep_the_same_tokens_and_load_together_or_not_at_all(
    free_threads: None, vllm_engine: Starting, tiny: Checkpoints, tmp_path: Path
) -> None:
    reference = FastVOracle(tiny["qwen2_5_vl"])
    pictures = [large_picture(number) for number in range(2)]
    prompts = [reference.prompt(QUESTION.format(PLACE), [picture]) for picture in pictures]
    with two_ranks(vllm_engine, tiny["qwen2_5_vl"], tmp_path) as llm:

        def ask(number: int, keep: float) -> tuple[int, str | None]:
            """Pictures that were encoded, and the tier that one came from."""
            (output,) = llm.generate([prompt_of(pictures[number])], sampling(keep), use_tqdm=False)
            expected = reference.answer(prompts[number], TOKENS, layer=LAYER, keep=keep)
            assert list(output.outputs[0].token_ids) == expected, (number, keep)
            report = output.ec_transfer_params["mmspec"]["encoder_cache"]
            return report["misses"], report["tier"]

        assert [ask(0, KEEP), ask(1, 0.25)] == [(1, None)] * 2
        wait_for_files(tmp_path / "entries", 2)
        assert [ask(0, 1.0), ask(1, KEEP)] == [(0, "disk")] * 2
        llm.llm_engine.engine_core.collective_rpc(lose_the_next_load_on_the_second_rank)
        assert ask(0, KEEP) == (1, None)
        assert ask(1, KEEP) == (0, "disk")
        assert not list((tmp_path / "held").iterdir())


def sampling(keep: float) -> Any:
    from vllm import SamplingParams

    return SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, extra_args={"fastv_keep": keep})


def wait_for_files(folder: Path, count: int) -> None:
    end = time.monotonic() + 60
    while not folder.exists() or len(os.listdir(folder)) < count:
        assert time.monotonic() < end, "the first rank does not save"
        time.sleep(0.05)


@leaves_weights_alone
def lose_the_next_load_on_the_second_rank(worker: Any) -> None:
    from vllm.distributed.ec_transfer import get_ec_transfer

    store = get_ec_transfer()._worker._store
    take = store.take

    def lost(key: Any, held: Any) -> None:
        store.take = take

    if worker.rank == 1:
        store.take = lost
