"""A head learns a tiny target's answers, goes on after an interruption, and comes back from disk as it was."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mmspec import MmspecError
from mmspec.heads.train.batches import Sample, collate
from mmspec.heads.train.build import new_head
from mmspec.heads.train.load import load_head
from mmspec.heads.train.settings import TrainSettings
from mmspec.heads.train.trainer import HeadTrainer, save_head
from mmspec.heads.train.unroll import unroll
from mmspec.heads.train.vocabulary import draft_vocabulary
from tests.conftest import Checkpoints

LAYERS = [2, 4, 5]


@pytest.fixture(scope="module")
def target(tiny: Checkpoints) -> Path:
    return tiny["qwen2_5_vl"]


@pytest.fixture(scope="module")
def samples(target: Path) -> list[Sample]:
    return greedy_samples(target, 24)


@pytest.mark.parametrize("vision", ["text", "features", "global"])
def test_a_head_learns_and_comes_back_from_disk(
    vision: str, target: Path, samples: list[Sample], tmp_path: Path
) -> None:
    trainer, settings = make_trainer(target, samples, vision=vision, steps=30)
    before = trainer.validate()
    after = trainer.train(tmp_path / "run")
    assert after["validation"] < 0.9 * before["validation"]
    assert after["mean_acceptance_length"] >= before["mean_acceptance_length"]
    assert (tmp_path / "run" / "loss.png").exists()

    save_head(trainer.head, settings, tmp_path / "head", "the-target", "0" * 64)
    config = json.loads((tmp_path / "head" / "config.json").read_text())
    assert config["speculators_config"]["verifier"]["name_or_path"] == "the-target"
    loaded, ours = load_head(tmp_path / "head", target)
    assert (ours.vision, ours.positions, ours.target_fingerprint) == (vision, "sequence", "0" * 64)
    batch = collate(samples[:3], vision == "features", False, torch.float32)
    with torch.no_grad():
        for one, other in zip(unroll(loaded, batch, 3), unroll(trainer.head.eval(), batch, 3), strict=True):
            torch.testing.assert_close(one.logits, other.logits)


def test_a_training_goes_on_where_it_stopped(target: Path, samples: list[Sample], tmp_path: Path) -> None:
    whole, _ = make_trainer(target, samples, steps=8)
    whole.train(tmp_path / "whole")
    broken, _ = make_trainer(target, samples, steps=8)
    count = 0
    step = broken._step_loss

    def interrupted() -> Any:
        nonlocal count
        count += 1
        if count == 7:
            raise KeyboardInterrupt
        return step()

    broken._step_loss = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        broken.train(tmp_path / "broken")
    again, _ = make_trainer(target, samples, steps=8)
    again.train(tmp_path / "broken")
    for one, other in zip(whole.head.parameters(), again.head.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_too_few_samples_are_refused(target: Path, samples: list[Sample]) -> None:
    with pytest.raises(MmspecError, match="too few"):
        make_trainer(target, samples[:1])


def test_three_dimensional_ids_need_plain_sections(tiny: Checkpoints, samples: list[Sample]) -> None:
    with pytest.raises(MmspecError, match="positions=sequence"):
        make_trainer(tiny["qwen3_vl"], samples, positions="mrope")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stepz": 3}, "did you mean 'steps'"),
        ({"vision": "blind"}, "choose text, features or global"),
        ({"rate": "fast"}, "rate"),
    ],
)
def test_wrong_settings_are_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(MmspecError, match=message):
        TrainSettings.parse(given)


def make_trainer(target: Path, samples: list[Sample], **given: Any) -> tuple[HeadTrainer, TrainSettings]:
    wanted = {"draft_vocab_size": 64, "draft_steps": 3, "batch_tokens": 256, "warmup": 2, "save_every": 4}
    settings = TrainSettings.parse({**wanted, "rate": 5e-3, "summary_size": 16, **given})
    answers = [sample["input_ids"][sample["loss_mask"]] for sample in samples]  # type: ignore[index]
    d2t, t2d, _ = draft_vocabulary(answers, settings.draft_vocab_size, 512)
    head = new_head(target, settings, LAYERS, (d2t, t2d))
    lengths = [len(sample["input_ids"]) for sample in samples]  # type: ignore[arg-type]
    return HeadTrainer(head, samples, lengths, settings), settings


@torch.no_grad()
def greedy_samples(target: Path, count: int) -> list[Sample]:
    """The target's answers to random words, with states as vLLM hands them to a draft; pictures are made up."""
    from transformers import Qwen2_5_VLForConditionalGeneration

    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(target, dtype=torch.float32).eval()
    last: list[torch.Tensor] = []
    model.model.language_model.layers[-1].register_forward_hook(
        lambda _m, _i, out: last.append(out[0] if isinstance(out, tuple) else out)
    )
    drawn = torch.Generator().manual_seed(0)
    samples: list[Sample] = []
    for _ in range(count):
        prompt = torch.randint(10, 200, (1, 8), generator=drawn)
        ids = model.generate(prompt, max_new_tokens=16, do_sample=False, eos_token_id=None)
        last.clear()
        states = model(ids, output_hidden_states=True).hidden_states
        length = ids.shape[1]
        visual = torch.zeros(length, dtype=torch.bool)
        visual[2:5] = True
        samples.append(
            {
                "input_ids": ids[0],
                "loss_mask": torch.arange(length) >= 8,
                "positions": torch.arange(length),
                "mrope_positions": torch.arange(length).expand(3, length),
                "hidden_states": torch.cat([states[layer][0] for layer in LAYERS], dim=-1),
                "last_hidden": last[0][0],
                "features": torch.randn(3, states[0].shape[-1], generator=drawn),
                "is_visual": visual,
            }
        )
    return samples
