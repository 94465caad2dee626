"""A learned summary of each picture, for the text behind it. The same module in training and in serving.

Source of the idea: Kang et al., "ViSpec: Accelerating Vision-Language Models with Vision-Aware Speculative Decoding",
2025, section 3.2: the summary is added to later text positions through a layer that starts as the identity.
"""

import torch
from torch.nn import functional

_MOST = 30.0  # exp of it is far from overflow, and sums of it lose nothing that matters


class ImageSummary(torch.nn.Module):
    """Pools a picture's visual tokens with learned weights, so that sums over parts of a picture can be added up.

    Args:
        width: of visual tokens and embeddings.
        inner: of the layer between pooling and what is added.
    """

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.score = torch.nn.Linear(width, 1, bias=False)
        self.up = torch.nn.Linear(width, inner, bias=False)
        self.down = torch.nn.Linear(inner, width, bias=False)
        torch.nn.init.zeros_(self.score.weight)  # at first every token counts the same
        torch.nn.init.zeros_(self.down.weight)  # and nothing is added

    def weigh(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Each token's weight [tokens, 1] and weighted features [tokens, width], both to be summed over a picture."""
        features = features.float()
        weights = self.score.weight.float() @ functional.rms_norm(features, features.shape[-1:]).mT
        weights = weights.mT.clamp(-_MOST, _MOST).exp()
        return weights, weights * features

    def read(self, weight: torch.Tensor, weighted: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """What to add to an embedding behind a picture [..., width]; zero where the weight [..., 1] is zero.

        Args:
            weight: sum of the picture's weights.
            weighted: sum of its weighted features [..., width].
        """
        pooled = weighted / weight.clamp(min=torch.finfo(torch.float32).tiny)
        pooled = functional.rms_norm(pooled, pooled.shape[-1:]).to(dtype)
        added = self.down(functional.silu(self.up(pooled)))
        return torch.where(weight > 0, added, torch.zeros_like(added))
