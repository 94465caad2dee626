"""The language model with its adapters, the tower before it, and probes that make visual tokens learn early.

A probe reads, after some layer, what a token should know by then: a visual token its row and column, how many objects
there are up to it, and how many of its own kind; a name in a question how many of it there are, and where the only
one is. Probes are thrown away after training.
"""

from dataclasses import dataclass

import torch
from peft import LoraConfig, inject_adapter_in_model
from torch.nn import functional
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLTextModel

from mmspec.encoders.pocket.architecture import HIDDEN_SIZE, IMAGE_TOKEN, pocket_config
from mmspec.encoders.pocket.base import load_language_model, load_tokenizer
from mmspec.encoders.pocket.kinds import KINDS
from mmspec.encoders.pocket.scenes import ROWS
from mmspec.encoders.pocket.train.mentions import MANY
from mmspec.encoders.pocket.train.tower import GRID, LABELS, PLACES, TowerWithTargets, word_embeddings
from mmspec.encoders.pocket.train.tree import Batch
from mmspec.encoders.pocket.train.weights import LORA_ALPHA, LORA_RANK

LORA_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
_PLACE_LAYER = 8  # after this layer a visual token should know its place
_NUMBER_LAYER = 12  # and after this one, how many objects come up to it
_MENTION_LAYER = 16  # and a name in a question, what it stands for
_MOST = 5  # objects in a picture
_ZONES = len(ROWS)  # and of columns as many
_PLACE_WEIGHT = 0.2
_NUMBER_WEIGHT = 0.5
_MENTION_WEIGHT = 0.2


@dataclass(frozen=True)
class Shown:
    """The visual tokens of one picture that the model is shown.

    Attributes:
        cells: their indices in the grid, ascending.
        labels: what is centred in each, an index into `LABELS`.
    """

    cells: list[int]
    labels: list[int]

    def running_counts(self) -> tuple[list[int], list[int]]:
        """For each token the objects up to it, and those of its own kind (0 where it holds none)."""
        kinds: list[int] = []
        objects, own = [], []
        for label in self.labels:
            kinds += [label] if label < len(KINDS) else []
            objects.append(len(kinds))
            own.append(kinds.count(label))
        return objects, own


class PocketReader(torch.nn.Module):
    """The language model with its adapters, the tower and the probes."""

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
        self.number = torch.nn.Linear(HIDDEN_SIZE, 2 * (_MOST + 1))
        self.mention = torch.nn.Linear(HIDDEN_SIZE, _MOST + 1 + _ZONES + _ZONES)
        self._seen_by_probes: dict[int, torch.Tensor] = {}
        for number in (_PLACE_LAYER, _NUMBER_LAYER, _MENTION_LAYER):
            self._watch(number)
        base.requires_grad_(False)

    def probes(self) -> list[torch.nn.Parameter]:
        return [*self.place.parameters(), *self.number.parameters(), *self.mention.parameters()]

    def hidden_states(
        self, batch: Batch, features: torch.Tensor | None, lower_only: bool = False
    ) -> torch.Tensor:
        """Last hidden states [trees, tokens, hidden].

        Args:
            features: the visual tokens [tokens, hidden] in order.
            lower_only: go no further than the probes of visual tokens need.
        """
        embeddings = self.base.get_input_embeddings()(batch.ids)
        if features is not None:
            embeddings = embeddings.masked_scatter((batch.ids == IMAGE_TOKEN).unsqueeze(-1), features)
        layers = self.text.layers
        self.text.layers = layers[:_NUMBER_LAYER] if lower_only else layers
        out = self.text(
            inputs_embeds=embeddings,
            position_ids=batch.positions,
            attention_mask={"full_attention": batch.mask},
            use_cache=False,
        )
        self.text.layers = layers
        return out.last_hidden_state

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return functional.linear(hidden, self.base.get_input_embeddings().weight)

    def place_loss(self, batch: Batch, shown: list[Shown]) -> torch.Tensor:
        """Of rows and columns, after the last pass through the model."""
        flat = torch.tensor([cell for picture in shown for cell in picture.cells])
        guesses = self._guesses(self.place, _PLACE_LAYER, batch)
        rows = functional.cross_entropy(guesses[:, :GRID], flat // GRID)
        return _PLACE_WEIGHT * (rows + functional.cross_entropy(guesses[:, GRID:], flat % GRID))

    def number_loss(self, batch: Batch, shown: list[Shown]) -> torch.Tensor:
        """Of running counts, after the last pass through the model."""
        counts = [picture.running_counts() for picture in shown]
        objects = torch.tensor([count for found, _ in counts for count in found])
        own = torch.tensor([count for _, found in counts for count in found])
        guesses = self._guesses(self.number, _NUMBER_LAYER, batch)
        of_kind = functional.cross_entropy(guesses[:, _MOST + 1 :][own > 0], own[own > 0])
        return _NUMBER_WEIGHT * (functional.cross_entropy(guesses[:, : _MOST + 1], objects) + of_kind)

    def mention_loss(self, batch: Batch) -> torch.Tensor:
        """Of what questions name, after the last pass through the model."""
        tree, token, *wanted = batch.mentions.T
        guesses = _read(self.mention, self._seen_by_probes[_MENTION_LAYER][tree, token])
        losses = [
            functional.cross_entropy(guess, right, ignore_index=MANY, reduction="sum")
            for guess, right in zip(guesses.split((_MOST + 1, _ZONES, _ZONES), dim=-1), wanted, strict=True)
        ]
        return _MENTION_WEIGHT * torch.stack(losses).sum() / max(1, len(token))

    def _guesses(self, probe: torch.nn.Linear, layer: int, batch: Batch) -> torch.Tensor:
        return _read(probe, self._seen_by_probes[layer][batch.ids == IMAGE_TOKEN])

    def _watch(self, number: int) -> None:
        def keep(
            _module: torch.nn.Module, _inputs: object, out: torch.Tensor | tuple[torch.Tensor, ...]
        ) -> None:
            self._seen_by_probes[number] = out[0] if isinstance(out, tuple) else out

        self.text.layers[number - 1].register_forward_hook(keep)


def _read(probe: torch.nn.Linear, states: torch.Tensor) -> torch.Tensor:
    guesses: torch.Tensor = probe(functional.layer_norm(states, states.shape[-1:]))
    return guesses
