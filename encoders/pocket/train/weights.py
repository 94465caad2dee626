"""Between the parameters that are trained and the two files that are shipped."""

import torch

LORA_RANK = 16
LORA_ALPHA = 32
LORA_SCALE = LORA_ALPHA / LORA_RANK
_TOWER = "tower.visual."
_ADAPTER = "text."

Weights = dict[str, torch.Tensor]


def split(parameters: Weights) -> tuple[Weights, Weights]:
    """Trained parameters as tower and LoRA delta in float16; the LoRA scale goes into B."""
    tower = {
        name.removeprefix(_TOWER): weight.half().contiguous()
        for name, weight in parameters.items()
        if name.startswith(_TOWER)
    }
    lora: Weights = {}
    for name, weight in parameters.items():
        if ".lora_A." in name:
            lora[_module(name, ".lora_A.") + ".A"] = weight.half().contiguous()
        elif ".lora_B." in name:
            lora[_module(name, ".lora_B.") + ".B"] = (weight * LORA_SCALE).half().contiguous()
    return tower, lora


def unsplit(tower: Weights, lora: Weights) -> Weights:
    """The parameters that `split` made the two from."""
    parameters = {_TOWER + name: weight.float() for name, weight in tower.items()}
    for name, weight in lora.items():
        module, side = name[:-2], name[-1]
        scale = LORA_SCALE if side == "B" else 1.0
        parameters[f"{_ADAPTER}{module}.lora_{side}.default.weight"] = weight.float() / scale
    return parameters


def _module(name: str, separator: str) -> str:
    return name.removeprefix(_ADAPTER).split(separator)[0]
