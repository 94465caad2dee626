"""`manifest.json` of a captured dataset: what it was made from and with, and which shards belong to it."""

import json
import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from mmspec.errors import MmspecError

NAME = "manifest.json"
FORMAT: Literal[1] = 1

# What makes data captured earlier and data captured now one dataset.
_IDENTITY = (
    "format",
    "fingerprint",
    "engine_dtype",
    "dtype",
    "aux_layer_ids",
    "hidden_size",
    "vocab_size",
    "temperature",
    "top_p",
    "max_tokens",
    "seed",
    "all_turns",
)


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ShardRecord(_Record):
    """A published file, relative to the dataset's folder."""

    name: str
    bytes: int


class Counts(_Record):
    """Of what the shards hold: `answer_tokens` are those of the loss mask; `pictures` are distinct ones."""

    conversations: int = 0
    samples: int = 0
    tokens: int = 0
    answer_tokens: int = 0
    pictures: int = 0
    skipped: int = 0


class SkippedRecord(_Record):
    """A line of the prompts that could not be used when the capture last ran."""

    line: int
    reason: str


class Manifest(_Record):
    """Everything but counts, shards, skipped lines, versions and `complete` is fixed by the first run."""

    format: Literal[1] = FORMAT
    model: str
    fingerprint: str  # of the target: `mmspec.heads.capture.fingerprint`
    engine_dtype: str
    dtype: str  # of states and features
    num_layers: int
    aux_layer_ids: list[int]
    hidden_size: int
    vocab_size: int
    mrope: bool
    temperature: float
    top_p: float
    max_tokens: int
    seed: int
    all_turns: bool
    mmspec_version: str
    vllm_version: str
    complete: bool = False
    counts: Counts = Counts()
    skipped: list[SkippedRecord] = []
    samples: list[ShardRecord] = []
    features: list[ShardRecord] = []

    def difference(self, other: "Manifest") -> str | None:
        """The first setting that keeps the two from being one dataset, as `name here, there`."""
        for name in _IDENTITY:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name} {_short(mine)}, not {_short(theirs)}"
        return None

    def identity(self) -> str:
        """The settings that `difference` compares, as text."""
        return json.dumps({name: getattr(self, name) for name in _IDENTITY})

    def write(self, folder: Path) -> None:
        """Replaces the manifest, whole or not at all."""
        draft = folder / f".{NAME}.part"
        with draft.open("w", encoding="utf-8") as file:
            file.write(json.dumps(self.model_dump(), indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, folder / NAME)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a captured dataset.

    Raises:
        MmspecError: there is none, or it is not one of this version.
    """
    path = folder / NAME
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise MmspecError(
            f"captured data {folder}: no {NAME}; give a folder that mmspec head capture made"
        ) from None
    except ValidationError as error:
        reason = error.errors()[0]
        where = ".".join(map(str, reason["loc"])) or "file"
        raise MmspecError(f"{path}: {where}: {reason['msg']}; capture the data again") from None
    except OSError as error:
        raise MmspecError(f"{path}: cannot be read ({error.strerror})") from None


def _short(value: Any) -> str:
    return f"{value[:12]}…" if isinstance(value, str) and len(value) > 20 else str(value)
