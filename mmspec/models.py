"""From the name of a model to a checkpoint that vLLM can load, checked before any weights are read."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mmspec.errors import MmspecError

POCKET = "pocket"

_HUB_NAME = re.compile(r"^[\w.-]+/[\w.-]+$")
_URL = re.compile(r"^\w+://")
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")


def resolve_model(name: str, report: Callable[[str], None] | None = None) -> str:
    """The folder or hub name behind `name`; "pocket" is built in the cache folder on first use.

    Args:
        name: what the user called the model.
        report: is told how the building goes on.

    Raises:
        MmspecError: no such folder, or a folder that is not a checkpoint.
    """
    if name == POCKET:
        from mmspec.encoders.pocket import build

        return str(build(report=report))
    return resolve_checkpoint(
        name, "model", f"{POCKET}, a folder with config.json and weights, or a hub name"
    )


def require_model(name: str) -> None:
    """Raises MmspecError as `resolve_model` would, and builds nothing: to be called before anything is printed."""
    if name != POCKET:
        resolve_model(name)


def resolve_checkpoint(name: str, what: str, choices: str) -> str:
    """`name` as an absolute folder when it is one that holds a checkpoint; a hub name stays as it is."""
    try:
        folder = Path(name).expanduser()
    except RuntimeError:  # ~somebody, and there is nobody of that name
        folder = Path(name)
    if folder.is_dir():
        read_config(folder, what)
        if not any(next(folder.glob(pattern), None) for pattern in _WEIGHTS):
            raise MmspecError(f"{what} {name}: no weights in this folder; give {choices}")
        return str(folder.resolve())
    if folder.is_file():
        raise MmspecError(f"{what} {name}: this is a file; give {choices}")
    if _URL.match(name) or (_HUB_NAME.match(name) and not name.startswith((".", "~"))):
        return name
    raise MmspecError(f"{what} {name}: no such folder; give {choices}")


def read_config(folder: Path, what: str) -> dict[str, Any]:
    """The checkpoint's config.json.

    Raises:
        MmspecError: it is missing or not a JSON object.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MmspecError(
            f"{what} {folder}: no config.json in this folder; give the folder of a checkpoint"
        ) from None
    except (OSError, ValueError) as error:
        raise MmspecError(
            f"{what} {folder}: config.json cannot be read ({error}); download the checkpoint again"
        ) from None
    if not isinstance(config, dict):
        raise MmspecError(f"{what} {folder}: config.json is not a JSON object; download the checkpoint again")
    return config
