"""A head that was exported drafts in stock vLLM, with every plugin off, as the head that it was made from."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mmspec.heads.formats import export_head
from tests.conftest import Checkpoints
from tests.engine.client import EngineWorker
from tests.engine.jobs import Job
from tests.engine.scenarios import MAX_TOKENS, mixed_batch, speculative_config
from tests.tiny.heads import build_eagle3_head

pytestmark = [pytest.mark.engine, pytest.mark.slow]

FAMILY = "qwen2_5_vl"


@pytest.fixture
def stock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[EngineWorker]:
    """vLLM's V1 runner in a process that loads no plugin."""
    monkeypatch.setenv("VLLM_PLUGINS", "")
    worker = EngineWorker("v1", tmp_path / "engine.log")
    yield worker
    worker.close()


def job(tiny: Checkpoints, head: Path) -> Job:
    return Job(
        model=str(tiny[FAMILY]),
        requests=mixed_batch(FAMILY),
        speculative=speculative_config("eagle3", {"eagle3": head}),
        max_tokens=MAX_TOKENS,
    )


def head_of_two_states(folder: Path) -> Path:
    """An older head that reads two of the target's hidden states instead of three."""
    build_eagle3_head(folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["fc.weight"] = tensors["fc.weight"][:, :128].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = folder / "config.json"
    config.write_text(config.read_text().replace("[\n    2,\n    4,\n    5\n  ]", "[\n    2,\n    5\n  ]"))
    return folder


def test_an_exported_head_drafts_in_stock_vllm(
    stock: EngineWorker, tiny: Checkpoints, tmp_path: Path
) -> None:
    exported = export_head(tiny["eagle3"], tmp_path / "exported", target=str(tiny[FAMILY]))
    two = export_head(
        head_of_two_states(tmp_path / "two"), tmp_path / "two_exported", target=str(tiny[FAMILY])
    )

    plain = stock.run(replace(job(tiny, tiny["eagle3"]), speculative=None))
    before = stock.run(job(tiny, tiny["eagle3"]))
    after = stock.run(job(tiny, exported.folder))
    of_two = stock.run(job(tiny, two.folder))

    assert before.tokens == after.tokens == of_two.tokens == plain.tokens
    assert before.answers == after.answers
    assert all(answer.drafted for outcome in (after, of_two) for answer in outcome.answers)
    assert any(sum(answer.accepted) for answer in after.answers)
    assert torch.equal(
        exported.load()["fc.weight"], load_file(tiny["eagle3"] / "model.safetensors")["fc.weight"]
    )
