"""FastV in transformers, plainly: what pruning in the engine is compared with.

From layer K on no query sees a dropped token, which is what dropping it means; positions stay as they are. What ranks
the visual tokens is read from the weights of eager attention. There is no key-value cache.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

Ranking = Callable[[Tensor, Tensor, int], Tensor]
"""Attention weights [heads, tokens, tokens], indices of visual tokens, and length of the prompt → scores [visual]."""


def last_token(weights: Tensor, visual: Tensor, length: int) -> Tensor:
    """FastV as published: the attention of the prompt's last token, averaged over heads."""
    return weights[:, length - 1].mean(0)[visual]


class Reference:
    """Prunes a vision-language model of transformers while in use as a context.

    Attributes:
        kept: indices in the prompt of the visual tokens that the last forward pass kept, ascending.
    """

    def __init__(
        self, model: Any, layer: int, keep: float, ranking: Ranking = last_token, *, per_image: bool = False
    ) -> None:
        if model.config._attn_implementation != "eager":
            model.set_attn_implementation("eager")
        self._model, self._layers = model, model.model.language_model.layers
        self._layer, self._keep, self._ranking, self._per_image = layer, keep, ranking, per_image
        self.kept: list[int] = []

    @contextmanager
    def pruning(self, prompt: Tensor) -> Iterator[None]:
        """Forward passes inside are of the token ids `prompt`  # [tokens], and of answers to it."""
        visual = (prompt == self._model.config.image_token_id).nonzero()[:, 0]
        dropped = visual[:0]

        def look(module: Any, arguments: Any, output: tuple[Tensor, Tensor]) -> None:
            nonlocal dropped
            if len(visual):
                scores = self._ranking(output[1][0], visual, len(prompt))
                kept = self._best(scores, visual)
                self.kept, dropped = kept.tolist(), visual[~torch.isin(visual, kept)]

        def hide(module: Any, arguments: Any, keywords: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            mask = keywords["attention_mask"].clone()  # [1, 1, tokens, tokens], added to the logits
            mask[..., dropped] = torch.finfo(mask.dtype).min
            return arguments, {**keywords, "attention_mask": mask}

        with ExitStack() as hooks:
            handles = [self._layers[self._layer - 1].self_attn.register_forward_hook(look)]
            for layer in self._layers[self._layer :]:
                handles.append(layer.register_forward_pre_hook(hide, with_kwargs=True))
            for handle in handles:
                hooks.callback(handle.remove)
            yield

    def _best(self, scores: Tensor, visual: Tensor) -> Tensor:
        everything = torch.arange(len(visual))
        breaks = (visual.diff() > 1).nonzero()[:, 0] + 1
        groups = everything.tensor_split(breaks) if self._per_image else [everything]
        chosen = [
            group[scores[group].argsort(descending=True)[: share(len(group), self._keep)]] for group in groups
        ]
        return visual[torch.cat(chosen).sort().values]


def share(count: int, keep: float) -> int:
    """The nearest whole number, halves up, but one at least."""
    return max(int(keep * count + 0.5), 1)
