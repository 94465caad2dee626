"""Muon in float32: PyTorch's own computes in bfloat16, which is thirty times slower on a CPU without it.

Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024.
"""

from collections.abc import Callable
from itertools import groupby

import torch

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic Newton-Schulz step, from the source above
_STEPS = 5


class Muon(torch.optim.Optimizer):
    """Momentum made orthogonal, for matrices; step sizes match AdamW's root mean square."""

    def __init__(self, params: list[torch.nn.Parameter], lr: float, momentum: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape = sorted(
                (p for p in group["params"] if p.grad is not None), key=lambda p: tuple(p.shape)
            )
            for shape, same in groupby(by_shape, key=lambda p: p.shape):
                matrices = list(same)
                updates = orthogonalise(torch.stack([self._momentum(p, group["momentum"]) for p in matrices]))
                scale = 0.2 * max(shape) ** 0.5
                for parameter, update in zip(matrices, updates, strict=True):
                    parameter.add_(update, alpha=-group["lr"] * scale)

    def _momentum(self, parameter: torch.nn.Parameter, momentum: float) -> torch.Tensor:
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None  # `step` passes over parameters without one
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].lerp_(gradient, 1 - momentum)
        return torch.lerp(gradient, state["momentum"], momentum)


def muon_and_adamw(
    model: torch.nn.Module, rate: float, is_inner: Callable[[str], bool]
) -> list[torch.optim.Optimizer]:
    """Muon for the trained matrices whose names `is_inner` picks, AdamW for everything else that is trained."""
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    inner = [p for name, p in trained if p.ndim == 2 and is_inner(name)]
    chosen = {id(p) for p in inner}
    rest = [p for _, p in trained if id(p) not in chosen]
    adamw = torch.optim.AdamW(rest, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
    return [Muon(inner, lr=rate), adamw] if inner else [adamw]


def orthogonalise(matrices: torch.Tensor) -> torch.Tensor:
    """Brings the singular values of each matrix [count, rows, columns] near one."""
    wide = matrices.shape[-2] <= matrices.shape[-1]
    x = matrices if wide else matrices.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = _COEFFICIENTS
    for _ in range(_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide else x.mT
