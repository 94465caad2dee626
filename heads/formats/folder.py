"""Writing a head's folder: whole, or not at all."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmspec.errors import MmspecError

if TYPE_CHECKING:
    from torch import Tensor

# Beside configuration and weights; speculators' own readers and vLLM pass them over.
_CARRIED = ("tokenizer*", "special_tokens_map.json", "vocab.json", "merges.txt", "README.md", "LICENSE*")


def write_head(folder: Path, config: dict[str, Any], tensors: dict[str, "Tensor"]) -> None:
    """Writes config.json and model.safetensors into a folder that is there."""
    from safetensors.torch import save_file

    whole = {name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()}
    save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def carry_files(source: Path, folder: Path) -> None:
    """Copies tokenizer, card and licence of a head."""
    for pattern in _CARRIED:
        for path in source.glob(pattern):
            if path.is_file():
                shutil.copy(path, folder / path.name)


@contextmanager
def new_folder(out: Path, *, force: bool) -> Iterator[Path]:
    """A folder beside `out` that takes its place once the block ends well; until then `out` stays as it is.

    Args:
        force: replace a checkpoint that is there; anything else is never replaced.

    Raises:
        MmspecError: `out` is in the way, or cannot be written.
    """
    _require_free(out, force)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise MmspecError(f"{out}: cannot be written ({error.strerror}); give another folder") from None
    try:
        beside.chmod(0o777 & ~_umask())
        yield beside
        _replace(out, beside)
    except OSError as error:
        raise MmspecError(
            f"{out}: cannot be written ({error.strerror or error}); nothing was changed"
        ) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _require_free(out: Path, force: bool) -> None:
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise MmspecError(f"{out}: is not a folder; give the name of a new one")
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not force:
        raise MmspecError(f"{out}: not empty; give another folder, or --force to replace the head in it")
    if not (out / "config.json").is_file():
        raise MmspecError(
            f"{out}: holds something else than a head, which --force does not replace; give another folder"
        )


def _replace(out: Path, beside: Path) -> None:
    """Puts `beside` where `out` is; what was there is kept until then."""
    if not out.exists():
        os.rename(beside, out)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{out.name}.old.", dir=out.parent))
    os.rename(out, old)
    try:
        os.rename(beside, out)
    except OSError:
        os.rename(old, out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
