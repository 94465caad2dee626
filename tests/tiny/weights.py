"""Seeded random weights that make a tiny model worth testing.

Transformers' own initialisation (std 0.02) gives models whose next token depends on the last token alone,
so a lost picture or a wrong position would go unseen. Here attention is sharp and the residual stream
mixes, so every input matters.
"""

import re
import zlib

import torch
from torch import nn

_SHARP = 2.0  # on queries and keys: attention logits get a standard deviation of about four
_BIAS_STD = 0.1


def randomize(model: nn.Module, *, seed: int = 0) -> None:
    """Fills every parameter from a generator keyed by the parameter's name.

    Parameters of the same name and shape get the same values in every model, so all families share
    their text weights and a tiny Llama is a plausible draft for them.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(random_weight(name, parameter.shape, seed))


def perturb(model: nn.Module, *, noise: float, seed: int = 1) -> None:
    """Adds noise, relative to each parameter's own spread: a draft that agrees with its target only sometimes."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.add_(
                    noise * parameter.std() * torch.randn(parameter.shape, generator=_generator(name, seed))
                )


def confine(output_head: nn.Linear, tokens: list[int]) -> None:
    """Lets greedy decoding say these tokens only: all other logits are zero, and the largest of these is above.

    With few words to say, drafts of every kind are accepted now and then.
    """
    with torch.no_grad():
        said = output_head.weight[tokens].clone()
        output_head.weight.zero_()
        output_head.weight[tokens] = said


def random_weight(name: str, shape: torch.Size, seed: int) -> torch.Tensor:
    """Returns one parameter's values, scaled by its fan-in; norms are near one, biases small."""
    values = torch.randn(shape, generator=_generator(name, seed))
    if name.endswith("bias"):
        return _BIAS_STD * values
    if len(shape) == 1:
        return 1 + _BIAS_STD * values
    if "embed" in name and "patch" not in name:
        return values
    fan_in = shape.numel() / shape[0]
    return values * fan_in**-0.5 * (_SHARP if re.search(r"\b[qk]_proj\b", name) else 1.0)


def _generator(name: str, seed: int) -> torch.Generator:
    own_name = re.sub(r"^(model\.)?(language_model\.)?(model\.)?", "", name)
    return torch.Generator().manual_seed(zlib.crc32(own_name.encode()) + seed)
