"""Batches, losses and scores of the stages that train the language model."""

import random
from collections import defaultdict
from pathlib import Path

import torch
from torch.nn import functional

from mmspec.encoders.pocket.architecture import EOS_TOKEN
from mmspec.encoders.pocket.kinds import KINDS
from mmspec.encoders.pocket.scenes import HELD_OUT_SEED, Scene, make_scene
from mmspec.encoders.pocket.train.adapted import PocketReader, Shown
from mmspec.encoders.pocket.train.manners import own_words
from mmspec.encoders.pocket.train.tower import scene_picture
from mmspec.encoders.pocket.train.tree import CAPTION_SHARE, Batch, TreeMaker, collate, conversations
from mmspec.training import Metrics

_VALIDATION_SCENES = 24
_MANNERS_EVERY = 1  # steps
_MANNERS_TEXTS = 3
_MANNERS_WEIGHT = 2.0
_MORE_PICTURES = 6  # of each step that are only counted and placed: that takes a few tokens and layers each
# Pictures shown whole, as they are when the model is asked: counts are read off shares of attention, and would come
# out too low if training always left some of the background out.
_SHOWN_WHOLE = 0.85
_KEPT_BACKGROUND = (0.4, 1.0)  # share of background tokens that the other pictures are shown with


def shown_of(labels: list[int], rng: random.Random) -> Shown:
    """All tokens that hold an object and a random part of the background."""
    share = 1.0 if rng.random() < _SHOWN_WHOLE else rng.uniform(*_KEPT_BACKGROUND)
    cells = [cell for cell, label in enumerate(labels) if label < len(KINDS) or rng.random() < share]
    return Shown(cells, [labels[cell] for cell in cells])


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
        batch, features, shown = self._batch(scenes, rng)
        hidden = self.model.hidden_states(batch, features)
        answer_loss, right = self._answers(batch, hidden)
        place, number = self.model.place_loss(batch, shown), self.model.number_loss(batch, shown)
        mention = self.model.mention_loss(batch)
        (answer_loss + place + number + mention).backward()
        more_number = self._count_more(rng)
        if step % _MANNERS_EVERY == 0:
            manners = self._manners_loss(rng)
            (_MANNERS_WEIGHT * manners).backward()
            self._last_manners = manners.item()
        return {
            "loss": answer_loss.item(),
            "right": right.float().mean().item(),
            "place": place.item(),
            "number": number.item(),
            "mention": mention.item(),
            "more_number": more_number,
            "manners": self._last_manners,
        }

    def _count_more(self, rng: random.Random) -> float:
        """Backward of the probes of visual tokens on further pictures, through the lower layers only."""
        scenes = [make_scene(rng.randrange(HELD_OUT_SEED // 2)) for _ in range(_MORE_PICTURES)]
        batch, features, shown = self._batch(scenes, rng, ask=False)
        self.model.hidden_states(batch, features, lower_only=True)
        number = self.model.number_loss(batch, shown)
        (number + self.model.place_loss(batch, shown)).backward()
        return number.item()

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
            _, right = self._answers(batch, self.model.hidden_states(batch, features))
            turns = batch.answers[:, 1:][batch.answers[:, 1:] >= 0]
            rows = torch.nonzero(batch.answers[:, 1:] >= 0)[:, 0]
            for row, kinds in enumerate(batch.kinds):
                for turn, kind in enumerate(kinds):
                    hits = right[(rows == row) & (turns == turn)].float()
                    found[kind].append(hits.mean().item() if kind == "caption" else float(hits.all()))
        self.model.train()
        return {kind: sum(hits) / len(hits) for kind, hits in sorted(found.items())}

    def _batch(
        self,
        scenes: list[Scene],
        rng: random.Random,
        caption_share: float = CAPTION_SHARE,
        ask: bool = True,
    ) -> tuple[Batch, torch.Tensor, list[Shown]]:
        drawn = [scene_picture(scene.seed) for scene in scenes]
        shown = [shown_of(labels, rng) for _, labels in drawn]
        with torch.set_grad_enabled(self.with_tower and torch.is_grad_enabled()):
            features = self.model.tower.features([picture for picture, _ in drawn])
        trees = [
            self._maker.make(scene, conversations(scene, rng, caption_share) if ask else [], picture.cells)
            for scene, picture in zip(scenes, shown, strict=True)
        ]
        chosen = torch.cat([f[picture.cells] for f, picture in zip(features, shown, strict=True)])
        return collate(trees, EOS_TOKEN), chosen, shown

    def _answers(self, batch: Batch, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean loss over the answers' tokens, and for each whether it is the likeliest."""
        wanted = batch.answers[:, 1:] >= 0
        # Answers never open a branch: the token before one of theirs is in its branch, too.
        logits = self.model.logits(hidden[:, :-1][wanted])
        targets = batch.ids[:, 1:][wanted]
        return functional.cross_entropy(logits, targets), logits.argmax(-1) == targets

    def _manners_loss(self, rng: random.Random) -> torch.Tensor:
        """Divergence from what the original model would say next, in nats, on its own texts."""
        texts = rng.sample(self._words, _MANNERS_TEXTS)
        length = max(map(len, texts))
        ids = torch.tensor([text + [0] * (length - len(text)) for text in texts])
        real = torch.tensor([[i < len(text) for i in range(length)] for text in texts])
        positions = torch.arange(length).expand(3, len(texts), length)
        mask = torch.ones(length, length).tril().bool().expand(len(texts), 1, length, length)
        with torch.no_grad():
            original = self.model.base(input_ids=ids).logits[real].log_softmax(-1)
        hidden = self.model.hidden_states(Batch(ids, positions, mask, ids, [], torch.empty(0, 5)), None)
        adapted = self.model.logits(hidden[real]).log_softmax(-1)
        return functional.kl_div(adapted, original, reduction="batchmean", log_target=True)
