"""Fingerprints of a vision tower's weights: features of other weights must never be found."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mmspec.encoders.cache.keys import framed
from mmspec.errors import MmspecError

_CHUNK = 16 * 1024**2


def checkpoint_fingerprint(folder: Path, prefixes: Sequence[str]) -> str:
    """A fingerprint of the tensors of a checkpoint whose names start so: the same in every process that can read it.

    Reads all bytes of those tensors. It is right as long as the engine serves what the checkpoint holds; after an
    update of the weights in place, use `mmspec.encoders.cache.tensors.fingerprint`.

    Args:
        folder: with safetensors files.
        prefixes: of the tower and of what maps its output, such as `("visual.",)`.

    Raises:
        MmspecError: no such tensors, or an unreadable file.
    """
    found = sorted(
        tensor for file in sorted(folder.glob("*.safetensors")) for tensor in _tensors(file, prefixes)
    )
    if not found:
        raise MmspecError(
            f"encoder cache: no tensor in {folder}/*.safetensors starts with {' or '.join(prefixes)}; "
            "the vision tower's weights cannot be told apart"
        )
    digest = hashlib.sha256()
    for name, described, file, start, end in found:
        digest.update(framed(name, described))
        for chunk in _chunks(Path(file), start, end):
            digest.update(chunk)
    return digest.hexdigest()


def tensor_names(folder: Path) -> list[str]:
    """Names of all tensors of a checkpoint.

    Raises:
        MmspecError: an unreadable file.
    """
    return sorted({name for file in folder.glob("*.safetensors") for name in _header(file)})


def _tensors(file: Path, prefixes: Sequence[str]) -> Iterator[tuple[str, str, str, int, int]]:
    """Name, dtype with shape, file, and where the bytes are."""
    for name, tensor in _header(file).items():
        if name.startswith(tuple(prefixes)):
            start, end = tensor["data_offsets"]
            offset = tensor["data_start"]
            yield name, f"{tensor['dtype']} {tensor['shape']}", str(file), offset + start, offset + end


def _header(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(length))
        header.pop("__metadata__", None)
        return {name: {**tensor, "data_start": 8 + length} for name, tensor in header.items()}
    except (OSError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise MmspecError(f"encoder cache: {file} is no safetensors file ({error})") from None


def _chunks(file: Path, start: int, end: int) -> Iterator[bytes]:
    with file.open("rb") as opened:
        opened.seek(start)
        while start < end:
            chunk = opened.read(min(_CHUNK, end - start))
            if not chunk:
                raise MmspecError(f"encoder cache: {file} is cut short; fetch the checkpoint again")
            start += len(chunk)
            yield chunk
