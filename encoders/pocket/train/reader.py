"""Stages 2 and 3: the language model learns to read the tower's tokens (reader), then both train together (join).

In both the language model is adapted by LoRA, and every few steps it is held to its own words.
"""

import argparse
import random
from collections import defaultdict
from pathlib import Path

import torch
from peft import LoraConfig, inject_adapter_in_model
from safetensors.torch import load_file
from torch.nn import functional
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLTextModel

from mmspec.encoders.pocket.architecture import EOS_TOKEN, HIDDEN_SIZE, IMAGE_TOKEN, pocket_config
from mmspec.encoders.pocket.assemble import LORA, TOWER
from mmspec.encoders.pocket.base import load_language_model, load_tokenizer
from mmspec.encoders.pocket.kinds import KINDS
from mmspec.encoders.pocket.scenes import HELD_OUT_SEED, Scene, make_scene
from mmspec.encoders.pocket.train.manners import own_words
from mmspec.encoders.pocket.train.muon import Muon
from mmspec.encoders.pocket.train.run import Metrics, Run, Schedule
from mmspec.encoders.pocket.train.tower import (
    GRID,
    LABELS,
    PLACES,
    TowerWithTargets,
    scene_picture,
    sharpen,
    word_embeddings,
)
from mmspec.encoders.pocket.train.tree import CAPTION_SHARE, Batch, TreeMaker, collate, conversations
from mmspec.encoders.pocket.train.weights import LORA_ALPHA, LORA_RANK, unsplit

LORA_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
_VALIDATION_SCENES = 24
_PLACE_LAYER = 8  # after this layer a visual token should know its place
_PLACE_WEIGHT = 0.2
_MANNERS_EVERY = 8  # steps
_MANNERS_TEXTS = 4
_KEPT_BACKGROUND = (
    0.4,
    1.0,
)  # share of background tokens that the model is shown, drawn anew for each picture


class PocketReader(torch.nn.Module):
    """The language model with its adapters, and the tower where the stage has one."""

    def __init__(self, with_tower: bool) -> None:
        super().__init__()
        base, tokenizer = load_language_model(), load_tokenizer()
        self.base, self.tokenizer = base, tokenizer
        config = pocket_config().text_config
        config._attn_implementation = "sdpa"
        text = Qwen2_5_VLTextModel(config)
        missing = text.load_state_dict(base.model.state_dict(), strict=False)
        for name in missing.missing_keys:
            if not name.endswith("_proj.bias"):
                raise ValueError(f"weight {name} is missing from the language model")
            text.get_parameter(name).data.zero_()
        text.requires_grad_(False)
        lora = LoraConfig(r=LORA_RANK, lora_alpha=LORA_ALPHA, target_modules=LORA_TARGETS)
        self.text = inject_adapter_in_model(lora, text)
        table = base.get_input_embeddings().weight.detach()
        self.tower = TowerWithTargets(
            word_embeddings(LABELS, tokenizer, table), word_embeddings(PLACES, tokenizer, table)
        )
        self.tower.requires_grad_(with_tower)
        self.place = torch.nn.Linear(HIDDEN_SIZE, 2 * GRID)
        self._at_place_layer: list[torch.Tensor] = []
        layer = self.text.layers[_PLACE_LAYER - 1]
        layer.register_forward_hook(lambda _m, _i, out: self._at_place_layer.append(_first(out)))
        base.requires_grad_(False)

    def hidden_states(self, batch: Batch, features: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Last hidden states and those after the place layer, both [trees, tokens, hidden]."""
        embeddings = self.base.get_input_embeddings()(batch.ids)
        if features is not None:
            embeddings = embeddings.masked_scatter((batch.ids == IMAGE_TOKEN).unsqueeze(-1), features)
        self._at_place_layer.clear()
        out = self.text(
            inputs_embeds=embeddings,
            position_ids=batch.positions,
            attention_mask={"full_attention": batch.mask},
            use_cache=False,
        )
        return out.last_hidden_state, self._at_place_layer[0]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return functional.linear(hidden, self.base.get_input_embeddings().weight)


def _first(out: torch.Tensor | tuple[torch.Tensor, ...]) -> torch.Tensor:
    return out[0] if isinstance(out, tuple) else out


def shown_cells(labels: list[int], rng: random.Random) -> list[int]:
    """All tokens that hold an object and a random part of the background."""
    share = rng.uniform(*_KEPT_BACKGROUND)
    return [cell for cell, label in enumerate(labels) if label < len(KINDS) or rng.random() < share]


class Teacher:
    """Makes batches and scores for a stage."""

    def __init__(self, model: PocketReader, with_tower: bool, pictures: int, folder: Path) -> None:
        self.model, self.with_tower, self.pictures = model, with_tower, pictures
        self._maker = TreeMaker(model.tokenizer)
        self._last_manners = 0.0
        self._words = own_words(folder.parent, model.base, model.tokenizer)

    def step_loss(self, step: int) -> Metrics:
        rng = random.Random(step + (HELD_OUT_SEED // 2 if self.with_tower else 0))
        torch.manual_seed(step)
        scenes = [make_scene(rng.randrange(HELD_OUT_SEED // 2)) for _ in range(self.pictures)]
        batch, features, cells = self._batch(scenes, rng)
        hidden, at_place_layer = self.model.hidden_states(batch, features)
        answer_loss, right = self._answers(batch, hidden)
        place_loss = self._place_loss(batch, at_place_layer, cells)
        (answer_loss + _PLACE_WEIGHT * place_loss).backward()
        manners = self._manners_loss(rng) if step % _MANNERS_EVERY == 0 else None
        if manners is not None:
            manners.backward()
            self._last_manners = manners.item()
        return {
            "loss": answer_loss.item(),
            "right": right.float().mean().item(),
            "place": place_loss.item(),
            "manners": self._last_manners,
        }

    @torch.no_grad()
    def validate(self) -> Metrics:
        """Share of answers whose every token is the likeliest, by kind, on scenes kept apart."""
        self.model.eval()
        found: dict[str, list[float]] = defaultdict(list)
        first = HELD_OUT_SEED - _VALIDATION_SCENES
        for seed in range(first, HELD_OUT_SEED, 4):
            rng = random.Random(seed)
            scenes = [make_scene(s) for s in range(seed, seed + 4)]
            batch, features, _ = self._batch(scenes, rng, caption_share=1.0)
            hidden, _ = self.model.hidden_states(batch, features)
            _, right = self._answers(batch, hidden)
            turns = batch.answers[:, 1:][batch.answers[:, 1:] >= 0]
            rows = torch.nonzero(batch.answers[:, 1:] >= 0)[:, 0]
            for row, kinds in enumerate(batch.kinds):
                for turn, kind in enumerate(kinds):
                    hits = right[(rows == row) & (turns == turn)].float()
                    found[kind].append(hits.mean().item() if kind == "caption" else float(hits.all()))
        self.model.train()
        return {kind: sum(hits) / len(hits) for kind, hits in sorted(found.items())}

    def _batch(
        self, scenes: list[Scene], rng: random.Random, caption_share: float = CAPTION_SHARE
    ) -> tuple[Batch, torch.Tensor, list[list[int]]]:
        drawn = [scene_picture(scene.seed) for scene in scenes]
        cells = [shown_cells(labels, rng) for _, labels in drawn]
        with torch.set_grad_enabled(self.with_tower and torch.is_grad_enabled()):
            features = self.model.tower.features([picture for picture, _ in drawn])
        trees = [
            self._maker.make(conversations(scene, rng, caption_share), shown)
            for scene, shown in zip(scenes, cells, strict=True)
        ]
        chosen = torch.cat([f[shown] for f, shown in zip(features, cells, strict=True)])
        return collate(trees, EOS_TOKEN), chosen, cells

    def _answers(self, batch: Batch, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean loss over the answers' tokens, and for each whether it is the likeliest."""
        wanted = batch.answers[:, 1:] >= 0
        # Answers never open a branch: the token before one of theirs is in its branch, too.
        logits = self.model.logits(hidden[:, :-1][wanted])
        targets = batch.ids[:, 1:][wanted]
        return functional.cross_entropy(logits, targets), logits.argmax(-1) == targets

    def _place_loss(self, batch: Batch, hidden: torch.Tensor, cells: list[list[int]]) -> torch.Tensor:
        flat = torch.tensor([cell for shown in cells for cell in shown])
        states = hidden[batch.ids == IMAGE_TOKEN]
        guesses = self.model.place(functional.layer_norm(states, states.shape[-1:]))
        rows = functional.cross_entropy(guesses[:, :GRID], flat // GRID)
        return rows + functional.cross_entropy(guesses[:, GRID:], flat % GRID)

    def _manners_loss(self, rng: random.Random) -> torch.Tensor:
        texts = rng.sample(self._words, _MANNERS_TEXTS)
        length = max(map(len, texts))
        ids = torch.tensor([text + [0] * (length - len(text)) for text in texts])
        real = torch.tensor([[i < len(text) for i in range(length)] for text in texts])
        positions = torch.arange(length).expand(3, len(texts), length)
        mask = torch.ones(length, length).tril().bool().expand(len(texts), 1, length, length)
        hidden, _ = self.model.hidden_states(Batch(ids, positions, mask, ids, []), None)
        return functional.cross_entropy(
            self.model.logits(hidden[:, :-1][real[:, 1:]]), ids[:, 1:][real[:, 1:]]
        )


def train(
    folder: Path, schedule: Schedule, stage: str, pictures: int, rate: float, tower_rate: float
) -> None:
    """Trains a stage, or goes on where an earlier run stopped; each starts from those before it."""
    torch.manual_seed(0)
    with_tower = stage == "join"
    model = PocketReader(with_tower)
    _start(model, folder.parent, ("tower", "reader") if with_tower else ("tower",))
    run = Run(folder, model, _optimizers(model, rate, tower_rate), schedule)
    teacher = Teacher(model, with_tower, pictures, folder)
    run.train(teacher.step_loss, teacher.validate)


def _optimizers(model: PocketReader, rate: float, tower_rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the adapters' factors, AdamW for the probe and, in `join`, the tower."""
    factors = [p for n, p in model.named_parameters() if p.requires_grad and ".lora_" in n]
    groups = [
        {"params": list(model.place.parameters()), "lr": rate},
        {"params": [p for p in model.tower.parameters() if p.requires_grad], "lr": tower_rate},
    ]
    adamw = torch.optim.AdamW(
        [group for group in groups if group["params"]], betas=(0.9, 0.99), weight_decay=0.0
    )
    return [Muon(factors, lr=rate), adamw]


def _start(model: PocketReader, folder: Path, stages: tuple[str, ...]) -> None:
    """Loads what earlier stages left; `join` without them goes on from the shipped weights."""
    checkpoints = [folder / stage / "checkpoint.pt" for stage in stages]
    if len(stages) == 2 and not any(path.exists() for path in checkpoints):
        model.load_state_dict(unsplit(load_file(TOWER), load_file(LORA)), strict=False)
        return
    for stage, path in zip(stages, checkpoints, strict=True):
        saved = torch.load(path, weights_only=True)["model"]
        named = {f"tower.{name}" if stage == "tower" else name: weight for name, weight in saved.items()}
        model.load_state_dict(named, strict=False)
    if stages == ("tower",):
        sharpen(model.tower)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", choices=("reader", "join"), required=True)
    parser.add_argument("--folder", type=Path, default=Path("runs/pocket"))
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--pictures", type=int, default=2, help="pictures a step")
    parser.add_argument("--rate", type=float, default=1e-3, help="peak learning rate of the adapters")
    parser.add_argument(
        "--tower-rate", type=float, default=1e-4, help="peak learning rate of the tower in join"
    )
    parser.add_argument("--save-every", type=int, default=50, help="steps")
    given = parser.parse_args()
    plan = Schedule(given.steps, warmup=20, save_every=given.save_every)
    train(given.folder / given.stage, plan, given.stage, given.pictures, given.rate, given.tower_rate)
