"""Where tensors become bytes, and bytes tensors: the only part of the cache that needs torch."""

import hashlib
from collections.abc import Iterable

import torch

from mmspec.encoders.cache.entry import Entry
from mmspec.encoders.cache.keys import framed

_NAMES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.float32: "F32",
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float64: "F64",
    torch.complex64: "C64",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


def entry_of(tensor: torch.Tensor) -> Entry:
    """The entry of a tensor on any device, in memory of its own.

    A copy even on the CPU: the features of one picture are often a view of those of a whole batch.

    Raises:
        ValueError: a dtype that safetensors does not know.
    """
    if tensor.dtype not in _NAMES:
        raise ValueError(f"features of dtype {tensor.dtype} cannot be stored")
    owned = tensor.detach().contiguous().to("cpu", copy=True)
    return Entry(_NAMES[tensor.dtype], tuple(tensor.shape), _bytes(owned))


def tensor_of(entry: Entry) -> torch.Tensor:
    """The tensor of an entry, in the entry's memory: to be copied to a device, and not to be written into."""
    dtype = _DTYPES[entry.dtype]
    if entry.data.nbytes == 0:
        return torch.empty(entry.shape, dtype=dtype)
    return torch.frombuffer(entry.data, dtype=dtype).reshape(entry.shape)


def fingerprint(weights: Iterable[tuple[str, torch.Tensor]]) -> str:
    """A fingerprint of weights as they are in memory, such as `tower.state_dict().items()`.

    With tensor parallelism each process has its share of the weights, and so a fingerprint of its own.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(weights, key=lambda named: named[0]):
        digest.update(framed(name, str(tensor.dtype), *map(str, tensor.shape)))
        digest.update(_bytes(tensor.detach().cpu().contiguous()))
    return digest.hexdigest()


def _bytes(tensor: torch.Tensor) -> memoryview:
    if tensor.numel() == 0:
        return memoryview(b"")
    return tensor.reshape(-1).view(torch.uint8).numpy().data
