"""Many questions about one picture in one sequence: the picture once, each conversation a branch behind it.

A branch sees the picture and itself, and its positions go on from the picture's end, so that each is trained as if
it stood alone, and the picture's tokens are paid for once.
"""

import random
from dataclasses import dataclass, field

import torch
from transformers import PreTrainedTokenizerBase

from mmspec.encoders.pocket.architecture import IMAGE_TOKEN, VISION_END, VISION_START
from mmspec.encoders.pocket.questions import CAPTION_REQUESTS, ask, ask_one, caption
from mmspec.encoders.pocket.scenes import Scene
from mmspec.encoders.pocket.train.mentions import mentions
from mmspec.encoders.pocket.train.tower import GRID

Turn = tuple[str, str, str]  # kind, question, answer
CAPTION_SHARE = 0.9  # of pictures whose caption is trained on
# Learned last, and can be asked about other objects or in other words.
_ASKED_AGAIN = ("count", "position", "what_at", "relation", "total")
_BACKGROUND_SHARE = 0.3  # of questions about the background: they are learned first
_FOLLOW_UP_SHARE = 0.3  # of questions that are asked as a second turn
_PREFIX_BRANCH = -1


@dataclass
class Tree:
    """One picture's sequence; the lists have one entry a token."""

    ids: list[int] = field(default_factory=list)
    positions: list[tuple[int, int, int]] = field(default_factory=list)  # time, height, width
    branches: list[int] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)  # index of the answered turn, or -1
    kinds: list[str] = field(default_factory=list)  # of each answered turn
    mentions: list[tuple[int, int, int, int]] = field(default_factory=list)  # token, count, row, column

    def add(self, ids: list[int], branch: int, start: int, answer: int = -1) -> int:
        """Appends text tokens at positions from `start`; returns the position after them."""
        self.ids += ids
        self.positions += [(p, p, p) for p in range(start, start + len(ids))]
        self.branches += [branch] * len(ids)
        self.answers += [answer] * len(ids)
        return start + len(ids)


def conversations(scene: Scene, rng: random.Random, caption_share: float = CAPTION_SHARE) -> list[list[Turn]]:
    """What is asked about a scene: single questions, pairs, and sometimes a caption."""
    asked = [q for q in ask(scene, rng) if q.kind != "background" or rng.random() < _BACKGROUND_SHARE]
    again = (ask_one(kind, scene, rng) for kind in _ASKED_AGAIN)
    asked += [q for q in again if q is not None and q not in asked]
    turns: list[Turn] = [(q.kind, q.text, q.answer) for q in asked]
    rng.shuffle(turns)
    if rng.random() < caption_share:
        turns.insert(0, ("caption", rng.choice(CAPTION_REQUESTS), caption(scene)))
    talks: list[list[Turn]] = []
    for turn in turns:
        if talks and len(talks[-1]) == 1 and rng.random() < _FOLLOW_UP_SHARE:
            talks[-1].append(turn)
        else:
            talks.append([turn])
    return talks


class TreeMaker:
    """Turns conversations about a picture into one sequence."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._user = self._encode("<|im_start|>user\n")
        self._assistant = self._encode("<|im_end|>\n<|im_start|>assistant\n")
        self._end = self._encode("<|im_end|>")
        self._next = self._encode("\n<|im_start|>user\n")

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def make(self, scene: Scene, talks: list[list[Turn]], cells: list[int]) -> Tree:
        """A tree over the visual tokens `cells` (their indices in the grid, ascending)."""
        tree = Tree()
        start = tree.add([*self._user, VISION_START], _PREFIX_BRANCH, 0)
        tree.ids += [IMAGE_TOKEN] * len(cells)
        tree.positions += [(start, start + cell // GRID, start + cell % GRID) for cell in cells]
        tree.branches += [_PREFIX_BRANCH] * len(cells)
        tree.answers += [-1] * len(cells)
        after = tree.add([VISION_END], _PREFIX_BRANCH, start + GRID)
        for branch, talk in enumerate(talks):
            position = after
            for number, (kind, question, answer) in enumerate(talk):
                position = tree.add(self._next, branch, position) if number else position
                self._note_mentions(tree, question, scene)
                position = tree.add(self._encode(question) + self._assistant, branch, position)
                position = tree.add(self._encode(answer) + self._end, branch, position, len(tree.kinds))
                tree.kinds.append(kind)
        return tree

    def _note_mentions(self, tree: Tree, question: str, scene: Scene) -> None:
        """Notes what the question says that is about to be added."""
        encoded = self._tokenizer(question, add_special_tokens=False)
        for mention in mentions(question, scene):
            token = len(tree.ids) + encoded.char_to_token(mention.last)
            tree.mentions.append((token, mention.count, mention.row, mention.column))


@dataclass
class Batch:
    """Trees side by side, padded: [trees, tokens] unless said otherwise."""

    ids: torch.Tensor
    positions: torch.Tensor  # [3, trees, tokens]
    mask: torch.Tensor  # bool [trees, 1, tokens, tokens]: who sees whom
    answers: torch.Tensor
    kinds: list[list[str]]
    mentions: torch.Tensor  # [mentions, 5]: tree, token, count, row, column


def collate(trees: list[Tree], pad: int) -> Batch:
    """Pads trees to one length; padding sees itself only and is seen by none."""
    length = max(len(tree.ids) for tree in trees)
    ids = torch.full((len(trees), length), pad)
    positions = torch.zeros(3, len(trees), length, dtype=torch.long)
    branches = torch.full((len(trees), length), -2)
    answers = torch.full((len(trees), length), -1)
    for row, tree in enumerate(trees):
        size = len(tree.ids)
        ids[row, :size] = torch.tensor(tree.ids)
        positions[:, row, :size] = torch.tensor(tree.positions).T
        branches[row, :size] = torch.tensor(tree.branches)
        answers[row, :size] = torch.tensor(tree.answers)
    seen = (branches[:, None, :] == branches[:, :, None]) | (branches[:, None, :] == _PREFIX_BRANCH)
    real = branches[:, None, :] != -2
    mask = (seen & real & torch.ones(length, length).tril().bool()) | torch.eye(length).bool()
    named = [(row, *mention) for row, tree in enumerate(trees) for mention in tree.mentions]
    kinds = [tree.kinds for tree in trees]
    return Batch(ids, positions, mask.unsqueeze(1), answers, kinds, torch.tensor(named).view(-1, 5))
