"""Weight files: what is in them, read without the weights themselves where only that is asked for."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmspec.errors import MmspecError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

_PICKLES = ("*.bin", "*.pt")
_AGAIN = "download or save it again"


@dataclass(frozen=True)
class TensorHeader:
    """A tensor without its values; `dtype` is spelt as in safetensors files: F32, BF16, I64, BOOL."""

    shape: tuple[int, ...]
    dtype: str


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint, or its PyTorch files where it has none.

    Raises:
        MmspecError: there are none, or a shard is missing.
    """
    found = sorted(folder.glob("*.safetensors")) or sorted(
        path for pattern in _PICKLES for path in folder.glob(pattern)
    )
    if not found:
        raise MmspecError(
            f"{folder}: no weights (model.safetensors or pytorch_model.bin) in this folder; {_AGAIN}"
        )
    for index in folder.glob("*.index.json"):
        shards = set(read_json(index).get("weight_map", {}).values())
        if missing := sorted(shards - {path.name for path in folder.iterdir()}):
            raise MmspecError(f"{folder}: {missing[0]}, named in {index.name}, is missing; {_AGAIN}")
    return found


def tensor_headers(folder: Path) -> dict[str, TensorHeader]:
    """Name, shape and dtype of every tensor in the folder's weight files.

    Raises:
        MmspecError: a file is truncated, or no weight file at all.
    """
    headers: dict[str, TensorHeader] = {}
    for path in weight_files(folder):
        if path.suffix == ".safetensors":
            with _opened(path) as file:
                slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118, no mapping
                headers |= {
                    name: TensorHeader(tuple(part.get_shape()), part.get_dtype())
                    for name, part in slices.items()
                }
        else:
            headers |= {name: _header(tensor) for name, tensor in _unpickled(path).items()}
    return headers


def load_tensors(folder: Path) -> dict[str, "Tensor"]:
    """Every tensor in the folder's weight files."""
    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder):
        if path.suffix == ".safetensors":
            with _opened(path, framework="pt") as file:
                tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no mapping
        else:
            tensors |= _unpickled(path)
    return tensors


def load_array(folder: Path, name: str) -> "np.ndarray[Any, Any] | None":
    """One tensor, of a dtype that NumPy knows, without importing torch for safetensors; None when not there."""
    for path in weight_files(folder):
        if path.suffix == ".safetensors":
            with _opened(path) as file:
                if name in file.keys():  # noqa: SIM118, no mapping
                    found: np.ndarray[Any, Any] = file.get_tensor(name)
                    return found
        elif (tensor := _unpickled(path).get(name)) is not None:
            return tensor.numpy()
    return None


def starts_with_nan(folder: Path, name: str) -> bool:
    """Whether the first row of a matrix of floats is not a number; only that row is read."""
    import numpy as np

    for path in weight_files(folder):
        if path.suffix != ".safetensors":
            row = _unpickled(path).get(name)
            return row is not None and bool(row[0].isnan().all())
        header, start = _raw_header(path)
        if name in header:
            with path.open("rb") as file:
                file.seek(start + header[name]["data_offsets"][0])
                width = header[name]["shape"][-1]
                return bool(np.isnan(_floats(file.read(width * 8), header[name]["dtype"])[:width]).all())
    return False


def _raw_header(path: Path) -> tuple[dict[str, Any], int]:
    """A safetensors file's own table of contents, and where the data begins."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    return header, 8 + size


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        MmspecError: the file is missing, cut off, or holds something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MmspecError(
            f"{path.parent}: no {path.name} in this folder; give the folder of a checkpoint"
        ) from None
    except (OSError, ValueError) as error:
        raise MmspecError(f"{path}: cannot be read ({error}); {_AGAIN}") from None
    if not isinstance(value, dict):
        raise MmspecError(f"{path}: not a JSON object; {_AGAIN}")
    return value


def _floats(data: bytes, dtype: str) -> "np.ndarray[Any, Any]":
    """Numbers of a dtype of safetensors; NumPy has no bfloat16, which is the upper half of float32."""
    import numpy as np

    if dtype == "BF16":
        halves = np.frombuffer(data[: len(data) // 2 * 2], dtype="<u2").astype(np.uint32)
        return (halves << 16).view(np.float32)
    known = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}[dtype]
    return np.frombuffer(data[: len(data) // 8 * 8], dtype=known)


@contextmanager
def _opened(path: Path, framework: str = "np") -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework=framework) as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise MmspecError(f"{path}: truncated or not a safetensors file ({error}); {_AGAIN}") from None


def _unpickled(path: Path) -> Mapping[str, "Tensor"]:
    """Tensors that are read when they are looked at. Anything but tensors is refused: pickles can run code."""
    import pickle

    import torch

    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError:
        raise MmspecError(
            f"{path}: holds more than tensors, or is cut off; get the head as model.safetensors"
        ) from None
    except (RuntimeError, EOFError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise MmspecError(f"{path}: truncated or not a PyTorch file ({reason}); {_AGAIN}") from None
    if not isinstance(found, dict) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise MmspecError(f"{path}: not a table of tensors; get the head as model.safetensors")
    return found


def _header(tensor: "Tensor") -> TensorHeader:
    import torch

    names = {
        torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64",
        torch.int64: "I64", torch.int32: "I32", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
    }  # fmt: skip
    return TensorHeader(
        tuple(tensor.shape), names.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))
    )
