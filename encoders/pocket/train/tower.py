"""Stage 1, tower: every visual token learns to be the word for what is centred in it.

A token that holds the centre of an object is drawn to the language model's own embedding of the object's name,
every other token to the embedding of the background's colour; to each are added the embeddings of the words for its
row and its column. No pass through the language model is needed, and what comes out is something that it can
already half read: a grid of words.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from PIL import Image
from torch.nn import functional
from transformers import PreTrainedTokenizerBase
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel

from mmspec.encoders.pocket.architecture import HIDDEN_SIZE, TOKEN_PIXELS, pocket_config
from mmspec.encoders.pocket.base import load_language_model, load_tokenizer
from mmspec.encoders.pocket.kinds import COLOURS, KINDS
from mmspec.encoders.pocket.scenes import (
    COLUMNS,
    HELD_OUT_SEED,
    PICTURE_SIZE,
    ROWS,
    background,
    make_scene,
    paste,
    shade_of,
)
from mmspec.encoders.pocket.train.pixels import patchify
from mmspec.training import Metrics, Run, Schedule, muon_and_adamw

GRID = PICTURE_SIZE // TOKEN_PIXELS  # visual tokens a side
LABELS = [kind.name for kind in KINDS] + list(COLOURS)
PLACES = ROWS + COLUMNS
TARGET_SCALE = (
    2.0  # how much longer than its embedding the word is in a visual token; words for places are not
)
_PLACE_WEIGHT = 1.0
_PLACE_GAIN = 2.0
_CROWDED = 0.5  # share of pictures that are crowded with objects, the others are scenes
_CENTRE_WEIGHT = 4.0  # objects' centres are few among the tokens
_JITTER = 9


def word_embeddings(
    words: Sequence[str], tokenizer: PreTrainedTokenizerBase, table: torch.Tensor
) -> torch.Tensor:
    """The rows of an embedding table that belong to words of one token each: [words, hidden]."""
    ids = [tokenizer.encode(" " + word, add_special_tokens=False) for word in words]
    if any(len(one) != 1 for one in ids):
        raise ValueError("every word must be a single token")
    return table[[one[0] for one in ids]]


def zone_of(cell: int) -> int:
    """The row or column of three in which a row or column of visual tokens has its middle."""
    return (2 * cell + 1) * 3 // (2 * GRID)


def dense_picture(rng: random.Random) -> tuple[Image.Image, list[int]]:
    """A picture crowded with objects and the label of each of its visual tokens."""
    colour = rng.choice(list(COLOURS))
    picture = background(shade_of(colour, rng), PICTURE_SIZE)
    labels = [LABELS.index(colour)] * (GRID * GRID)
    taken: list[tuple[int, int]] = []
    cells = [(row, column) for row in range(GRID) for column in range(GRID)]
    for row, column in rng.sample(cells, len(cells)):
        if any(abs(row - r) < 2 and abs(column - c) < 2 for r, c in taken):
            continue
        taken.append((row, column))
        index = rng.randrange(len(KINDS))
        x, y = (
            cell * TOKEN_PIXELS + TOKEN_PIXELS // 2 + rng.randint(-_JITTER, _JITTER) for cell in (column, row)
        )
        paste(picture, KINDS[index], x, y, rng.randint(42, 58))
        labels[row * GRID + column] = index
    return picture, labels


def scene_picture(seed: int) -> tuple[Image.Image, list[int]]:
    """A scene and the label of each of its visual tokens."""
    scene = make_scene(seed)
    labels = [LABELS.index(scene.colour)] * (GRID * GRID)
    for thing in scene.things:
        labels[thing.y // TOKEN_PIXELS * GRID + thing.x // TOKEN_PIXELS] = KINDS.index(thing.kind)
    return scene.draw(), labels


class TowerWithTargets(torch.nn.Module):
    """The vision tower with the word embeddings that its tokens are measured against.

    Args:
        words: embeddings of `LABELS`.
        places: embeddings of `PLACES`.
    """

    words: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor
    row_of_token: torch.Tensor
    column_of_token: torch.Tensor

    def __init__(self, words: torch.Tensor, places: torch.Tensor) -> None:
        super().__init__()
        config = pocket_config().vision_config
        config._attn_implementation = "sdpa"
        self.visual = Qwen2_5_VisionTransformerPretrainedModel(config)
        self.register_buffer("words", words * TARGET_SCALE, persistent=False)
        zones = torch.tensor([zone_of(cell) for cell in range(GRID)])
        self.register_buffer("rows", places[: len(ROWS)], persistent=False)
        self.register_buffer("columns", places[len(ROWS) :], persistent=False)
        self.register_buffer("row_of_token", zones.repeat_interleave(GRID), persistent=False)
        self.register_buffer("column_of_token", zones.repeat(GRID), persistent=False)
        self.sharpness = torch.nn.Parameter(torch.tensor(0.2))

    def features(self, pictures: list[Image.Image]) -> torch.Tensor:
        """Visual tokens [pictures, tokens, hidden]."""
        patches, grid = patchify(pictures)
        tokens = self.visual(patches, grid_thw=grid).pooler_output
        return tokens.reshape(len(pictures), -1, HIDDEN_SIZE)

    def scores(self, part: torch.Tensor, choices: torch.Tensor) -> torch.Tensor:
        """How near each token's part [pictures, tokens, hidden] is to each choice: [pictures, tokens, choices]."""
        distance = part.square().sum(-1, keepdim=True) - 2 * part @ choices.T + choices.square().sum(-1)
        return -self.sharpness.abs() * distance

    def parts(
        self, features: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What is left of each token for word, row and column when the other two are taken off as they should be."""
        word, row, column = (
            self.words[labels],
            self.rows[self.row_of_token],
            self.columns[self.column_of_token],
        )
        return features - row - column, features - word - column, features - word - row


def loss_of(model: TowerWithTargets, pictures: list[Image.Image], labels: torch.Tensor) -> torch.Tensor:
    """Classification by the nearest word, row and column, and the distance to their sum."""
    word, row, column = model.parts(model.features(pictures), labels)
    weights = torch.where(labels < len(KINDS), _CENTRE_WEIGHT, 1.0).flatten()
    loss = _nearest(model, word, model.words, labels)
    for part, choices, wanted in (
        (row, model.rows, model.row_of_token),
        (column, model.columns, model.column_of_token),
    ):
        loss = loss + _PLACE_WEIGHT * _nearest(model, part, choices, wanted.expand_as(labels))
    distance = (word - model.words[labels]).square().mean(-1) / model.words.square().mean()
    return ((loss + 0.5 * distance.flatten()) * weights).sum() / weights.sum()


def _nearest(
    model: TowerWithTargets, part: torch.Tensor, choices: torch.Tensor, wanted: torch.Tensor
) -> torch.Tensor:
    scores = model.scores(part, choices)
    return functional.cross_entropy(scores.flatten(0, 1), wanted.flatten(), reduction="none")


@torch.no_grad()
def sharpen(model: TowerWithTargets) -> None:
    """Makes a trained tower's tokens as legible as text, by a linear map that goes into the merger's last layer.

    The words for objects and colours share a mean, those for places another, and a visual token, the sum of a doubled
    word, a row and a column, has each of them twice: all but one of the former are taken off. Then what tells rows
    and columns apart is made `_PLACE_GAIN` times as large.
    """
    shared = model.words.mean(0) / TARGET_SCALE
    surplus = (TARGET_SCALE - 1) * shared + model.rows.mean(0) + model.columns.mean(0)
    directions = torch.cat([model.rows - model.rows.mean(0), model.columns - model.columns.mean(0)])
    basis = torch.linalg.svd(directions, full_matrices=False).Vh[
        : len(PLACES) - 2
    ]  # a row and a column are given
    gain = torch.eye(HIDDEN_SIZE) + (_PLACE_GAIN - 1) * basis.T @ basis
    last = model.visual.merger.mlp[-1]
    last.weight.copy_(gain @ last.weight)
    last.bias.copy_(gain @ (last.bias - surplus))


@torch.no_grad()
def accuracy(model: TowerWithTargets, seeds: range) -> Metrics:
    """Shares of tokens on scenes that are nearest to their own word, row and column; words apart for objects."""
    model.eval()
    pictures, labels = zip(*(scene_picture(seed) for seed in seeds), strict=True)
    wanted = torch.tensor(labels)
    features = torch.cat([model.features(list(pictures[i : i + 32])) for i in range(0, len(pictures), 32)])
    word, row, column = model.parts(features, wanted)
    centres = wanted < len(KINDS)
    model.train()
    right = model.scores(word, model.words).argmax(-1) == wanted
    rows = model.scores(row, model.rows).argmax(-1) == model.row_of_token
    columns = model.scores(column, model.columns).argmax(-1) == model.column_of_token
    return {
        "objects": _share(right[centres]),
        "background": _share(right[~centres]),
        "rows": _share(rows[centres]),
        "columns": _share(columns[centres]),
    }


def _share(right: torch.Tensor) -> float:
    return right.float().mean().item()


def train(folder: Path, schedule: Schedule, batch: int, rate: float) -> TowerWithTargets:
    """Trains the tower, or goes on where an earlier run stopped."""
    torch.manual_seed(0)
    table, tokenizer = load_language_model().get_input_embeddings().weight.detach(), load_tokenizer()
    model = TowerWithTargets(
        word_embeddings(LABELS, tokenizer, table), word_embeddings(PLACES, tokenizer, table)
    )
    run = Run(folder, model, muon_and_adamw(model, rate, lambda name: "blocks" in name), schedule)

    def step_loss(step: int) -> Metrics:
        rng = random.Random(step)
        made = [
            dense_picture(rng) if rng.random() < _CROWDED else scene_picture(rng.randrange(HELD_OUT_SEED))
            for _ in range(batch)
        ]
        pictures, labels = zip(*made, strict=True)
        loss = loss_of(model, list(pictures), torch.tensor(labels))
        loss.backward()
        return {"loss": loss.item()}

    run.train(step_loss, lambda: accuracy(model, range(HELD_OUT_SEED - 128, HELD_OUT_SEED)))
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/pocket/tower"))
    parser.add_argument("--steps", type=int, default=1600)
    parser.add_argument("--batch", type=int, default=24, help="pictures a step")
    parser.add_argument("--rate", type=float, default=1e-3, help="peak learning rate")
    parser.add_argument("--save-every", type=int, default=100, help="steps")
    given = parser.parse_args()
    train(given.folder, Schedule(given.steps, save_every=given.save_every), given.batch, given.rate)
