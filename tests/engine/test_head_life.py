"""A head from prompts to drafts: captured, trained, checked, exported, evaluated, and served beside a random one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Checkpoints
from tests.engine.client import EngineWorker
from tests.engine.jobs import Job, Outcome
from tests.engine.runners import in_process_environment
from tests.engine.scenarios import chat
from tests.pictures import PICTURES

pytestmark = [pytest.mark.engine, pytest.mark.slow]

TOKENS = 3
QUESTIONS = ("What is in the picture?", "Count the apples.", "Describe the picture.", "Where is the ball?")


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prompts")
    lines = []
    for name, draw in PICTURES.items():
        draw().save(folder / f"{name}.png")
        lines += [
            {"image": f"{name}.png", "messages": [{"role": "user", "content": text}]} for text in QUESTIONS
        ]
    lines += [{"messages": [{"role": "user", "content": text}]} for text in QUESTIONS]
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def captured(prompts: Path, tiny: Checkpoints) -> Path:
    folder = prompts.parent / "captured"
    mmspec("head", "capture", prompts, folder, "--model", tiny["qwen2_5_vl"], *ENGINE, "--max-tokens", 24)
    return folder


ENGINE = ("--max-model-len", 512, "--engine-dtype", "float32")
TRAINING = ("--draft-vocab-size", 128, "--batch-tokens", 512, "--rate", 5e-3)


@pytest.fixture(scope="module", params=["text", "features", "global"])
def vision(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def head(vision: str, captured: Path, tiny: Checkpoints) -> Path:
    return train(captured, tiny, vision, 60)


def test_a_trained_head_is_accepted_more_often_than_a_random_one(
    vision: str, head: Path, captured: Path, tiny: Checkpoints, runner: str, engine_workers: Any
) -> None:
    if runner == "v2" and vision == "text":
        pytest.skip("stock vLLM's own draft class; the V2 runner is tried with ours")
    worker: EngineWorker = engine_workers(runner)
    trained = worker.run(job(tiny, head))
    assert trained.tokens == worker.run(job(tiny, None)).tokens
    random_head = job(tiny, train(captured, tiny, "text", 1))
    # On V1, which is fast; that both runners draft alike is tests/engine/test_drafting.py's.
    assert accepted(trained) > accepted(engine_workers("v1").run(random_head)) + 0.2


def accepted(outcome: Outcome) -> float:
    """Accepted tokens a draft."""
    counts = [count for answer in outcome.answers for count in answer.accepted]
    return sum(counts) / len(counts)


def test_a_text_head_drafts_in_stock_vllm(captured: Path, tiny: Checkpoints, tmp_path: Path) -> None:
    head = train(captured, tiny, "text", 60)
    mmspec("head", "export", head, tmp_path / "exported", "--target", tiny["qwen2_5_vl"])
    log = tmp_path / "worker.log"
    os.environ["VLLM_PLUGINS"] = ""
    try:
        worker = EngineWorker("v1", log)
    finally:
        del os.environ["VLLM_PLUGINS"]
    try:
        stock = job(tiny, tmp_path / "exported")
        stock.engine.pop("additional_config")
        assert sum(sum(answer.accepted) for answer in worker.run(stock).answers) > 0
    finally:
        worker.close()


def test_simulated_and_served_acceptance_agree(
    vision: str, head: Path, prompts: Path, tiny: Checkpoints
) -> None:
    """What the answer's end cuts off is counted differently, so short answers may differ by a little."""
    if vision == "text":
        pytest.skip("the others have more that could differ")
    arguments = ("--model", tiny["qwen2_5_vl"], "--prompts", prompts, "-k", TOKENS, "--max-tokens", 48)
    result = mmspec("head", "eval", head, *arguments, "--max-model-len", 512, "--json")
    score = result["prompts"]["0.0"]
    assert score["engine"]["drafts"] > 100
    assert abs(score["difference"]) < 0.05


def job(tiny: Checkpoints, head: Path | None) -> Job:
    draft = {"method": "eagle3", "model": str(head), "num_speculative_tokens": TOKENS}
    requests = [chat("qwen2_5_vl", text, (name,)) for name in list(PICTURES)[:2] for text in QUESTIONS]
    return Job(
        model=str(tiny["qwen2_5_vl"]),
        requests=requests,
        speculative=draft if head else None,
        engine={"additional_config": {"mmspec": {}}},
        max_tokens=24,
    )


def train(captured: Path, tiny: Checkpoints, vision: str, steps: int) -> Path:
    run = captured.parent / f"{vision}-{steps}"
    if not (run / "head").exists():
        settings = (
            "--vision",
            vision,
            "--steps",
            steps,
            "--set",
            f"save_every={steps}",
            "--set",
            "draft_steps=3",
        )
        settings += ("--set", "validation_samples=2", "--set", "warmup=2")
        mmspec("head", "train", captured, run, "--target", tiny["qwen2_5_vl"], *settings, *TRAINING)
        mmspec("head", "check", run / "head", tiny["qwen2_5_vl"])
    return run / "head"


def mmspec(*arguments: Any) -> Any:
    """Runs the command; returns the JSON object that it printed, if it did."""
    done = subprocess.run(
        [sys.executable, "-m", "mmspec.cli.main", *map(str, arguments)],
        env={**os.environ, **in_process_environment()},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    last = done.stdout.strip().splitlines()[-1:]
    return json.loads(last[0]) if "--json" in arguments else None
