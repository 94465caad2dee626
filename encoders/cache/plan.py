"""What pictures cost in each tier, from the entries that are there."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from mmspec.encoders.cache.catalog import Record
from mmspec.encoders.cache.entry import ITEM_BYTES


@dataclass(frozen=True)
class ModelUse:
    """The entries of one encoder.

    Attributes:
        model, encoder: its name for people, and its digest.
        rows: embeddings in all entries: vLLM counts its own cache in these.
        data_bytes: of the features alone, as they lie on the device.
        file_bytes: as they lie in a folder.
    """

    model: str
    encoder: str
    entries: int
    rows: int
    data_bytes: int
    file_bytes: int
    largest_file_bytes: int


def by_model(records: Iterable[Record]) -> list[ModelUse]:
    """What each encoder's entries take, the largest share first."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        groups[record.key.encoder].append(record)
    return sorted(map(_use, groups.values()), key=lambda use: -use.file_bytes)


def plan(use: ModelUse, images: int) -> dict[str, int]:
    """What `images` pictures like those of `use` cost: means times `images`, rounded up.

    A remote entry is as long as a file; what the server adds for itself is not in it.
    """
    return {
        "device_embeddings": _scaled(use.rows, images, use),
        "device_bytes": _scaled(use.data_bytes, images, use),
        "host_bytes": _scaled(use.file_bytes, images, use),
        "disk_bytes": _scaled(use.file_bytes, images, use),
        "remote_bytes": _scaled(use.file_bytes, images, use),
    }


def _use(records: list[Record]) -> ModelUse:
    sizes = [record.bytes for record in records]
    numbers = [(_rows(record.shape), record.shape[-1] if record.shape else 1, record) for record in records]
    return ModelUse(
        model=records[0].key.model,
        encoder=records[0].key.encoder,
        entries=len(records),
        rows=sum(rows for rows, _, _ in numbers),
        data_bytes=sum(rows * width * ITEM_BYTES[record.dtype] for rows, width, record in numbers),
        file_bytes=sum(sizes),
        largest_file_bytes=max(sizes),
    )


def _rows(shape: tuple[int, ...]) -> int:
    rows = 1
    for size in shape[:-1]:
        rows *= size
    return rows


def _scaled(total: int, images: int, use: ModelUse) -> int:
    return -(-total * images // use.entries)
