"""One picture's features as bytes, and the file format that carries them.

A file is a safetensors file with one tensor, `features`, so that any tool can read it; its metadata name the key, the
layout, and a checksum over the rest of the header and the data. Nothing is unpickled, and nothing needs torch.
"""

import json
import math
from dataclasses import dataclass

import xxhash

from mmspec.encoders.cache.keys import FeatureKey

LAYOUT = 1  # raise it when the header changes; files of another layout are dropped
_ALIGNMENT = 64  # of the data in the file
_LENGTH_BYTES = 8
_MAX_HEADER = 4096
_NO_CHECKSUM = b"0" * 32  # in its place while it is computed

# safetensors' names of dtypes, and bytes per number
ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip


class Corrupt(Exception):
    """Bytes that are not the entry they are said to be; the text says why."""


@dataclass(frozen=True)
class Entry:
    """Features of one picture.

    Attributes:
        dtype: safetensors' name, a key of `ITEM_BYTES`.
        shape: `(rows, width)` for one picture; any other works too.
        data: the numbers, row after row; its owner lives as long as this view.
    """

    dtype: str
    shape: tuple[int, ...]
    data: memoryview

    def __post_init__(self) -> None:
        if self.data.nbytes != math.prod(self.shape) * ITEM_BYTES[self.dtype]:
            raise ValueError(f"{self.data.nbytes} bytes are not {self.dtype} {self.shape}")


@dataclass(frozen=True)
class Description:
    """What a header says of its entry.

    Attributes:
        header: its bytes; the data follow them in the file.
    """

    key: FeatureKey
    dtype: str
    shape: tuple[int, ...]
    checksum: str
    header: bytes

    @property
    def file_bytes(self) -> int:
        return len(self.header) + math.prod(self.shape) * ITEM_BYTES[self.dtype]

    def expect(self, name: str, file_bytes: int) -> None:
        """Raises `Corrupt` where the key or the length of the file is another."""
        if self.key.name != name:
            raise Corrupt("the entry of another key")
        if self.file_bytes != file_bytes:
            raise Corrupt(f"{file_bytes} bytes instead of {self.file_bytes}")


def encode(key: FeatureKey, entry: Entry) -> bytes:
    """The header to be written before `entry.data`."""
    header = _header(key, entry)
    return header.replace(_NO_CHECKSUM, _checksum(header, entry.data).encode(), 1)


def describe(content: memoryview) -> Description:
    """Reads the header at the start of a file, without its data.

    Raises:
        Corrupt: no header, or one of another layout.
    """
    start = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    if not _LENGTH_BYTES < start <= min(_MAX_HEADER, content.nbytes):
        raise Corrupt("no header")
    try:
        return _parse(bytes(content[:start]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Corrupt("an unreadable header, or one of another layout") from None


def decode(content: memoryview, name: str) -> Entry:
    """The entry in the content of a whole file.

    Args:
        content: the bytes of the file; the entry's data is a view into them.
        name: of the key that is looked for.

    Raises:
        Corrupt: a wrong header, length, key, or checksum.
    """
    described = describe(content)
    described.expect(name, content.nbytes)
    return assemble(described, content[len(described.header) :])


def assemble(described: Description, data: memoryview, *, verify: bool = True) -> Entry:
    """The entry of a header and its data.

    Args:
        verify: whether to compute the checksum.

    Raises:
        Corrupt: a wrong checksum.
    """
    if verify:
        header = described.header.replace(described.checksum.encode(), _NO_CHECKSUM, 1)
        if _checksum(header, data) != described.checksum:
            raise Corrupt("a wrong checksum")
    return Entry(described.dtype, described.shape, data)


def _parse(header: bytes) -> Description:
    found = json.loads(header[_LENGTH_BYTES:])
    tensor, metadata = found["features"], found["__metadata__"]
    if metadata["layout"] != str(LAYOUT) or tensor["dtype"] not in ITEM_BYTES:
        raise ValueError
    if len(bytes.fromhex(metadata["xxh3_128"])) != len(_NO_CHECKSUM) // 2:
        raise ValueError
    if not all(type(size) is int and size >= 0 for size in tensor["shape"]):
        raise ValueError
    key = FeatureKey(metadata["key"], metadata["encoder"], metadata["namespace"], True, metadata["model"])
    return Description(key, tensor["dtype"], tuple(tensor["shape"]), metadata["xxh3_128"], header)


def _header(key: FeatureKey, entry: Entry) -> bytes:
    metadata = {
        "layout": str(LAYOUT),
        "xxh3_128": _NO_CHECKSUM.decode(),
        "key": key.name,
        "encoder": key.encoder,
        "namespace": key.namespace,
        "model": key.model,
    }
    tensor = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [0, entry.data.nbytes]}
    text = json.dumps({"__metadata__": metadata, "features": tensor}).encode()
    text += b" " * (-(_LENGTH_BYTES + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def _checksum(header: bytes, data: memoryview) -> str:
    """Over all bytes of the file but the checksum itself."""
    digest = xxhash.xxh3_128(header)
    digest.update(data)
    return digest.hexdigest()
