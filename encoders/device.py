"""Tensors on their way to a device, without anybody waiting for it."""

import torch
from torch import Tensor


def to_device(host: Tensor, device: torch.device) -> Tensor:
    """A tensor in host memory on `device`; the caller's memory itself where that is the CPU.

    A GPU copies from ordinary memory only while the caller waits, behind all that it was given before; from pinned
    memory it copies when its turn comes. PyTorch keeps the pinned copy until that is done.
    """
    if device.type == "cpu":
        return host
    return (host.pin_memory() if device.type == "cuda" else host).to(device, non_blocking=True)
