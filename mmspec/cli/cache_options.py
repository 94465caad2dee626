"""The options of the vision-feature cache: on, off, a folder with its size, or everything as JSON."""

import os
from pathlib import Path
from typing import Annotated

import typer

from mmspec.cli.options import section_from
from mmspec.config import EncoderCacheConfig
from mmspec.errors import MmspecError

EncoderCache = Annotated[
    str,
    typer.Option(
        "--encoder-cache",
        help="The vision-feature cache: off, on (in the user's cache folder), a folder such as ./features, or its "
        "options as JSON.",
    ),
]
EncoderCacheSize = Annotated[
    str | None,
    typer.Option(
        "--encoder-cache-size",
        help="Most bytes that the cache's folder keeps, with a unit, such as 500MB or 20GB.",
        show_default=EncoderCacheConfig.model_fields["disk_size"].default,
    ),
]


def encoder_cache_from(text: str, size: str | None = None) -> EncoderCacheConfig | None:
    """The typed form of `--encoder-cache` and `--encoder-cache-size`.

    Raises:
        MmspecError: not on, off, a folder, or options of the cache; a size of no folder; a folder that will not do.
    """
    config = _sized(_encoder_cache(text), size)
    if config is not None and (folder := config.folder()) is not None:
        from mmspec.encoders.cache.opening import require_usable  # imports numpy

        require_usable(folder, writes=config.role != "consumer")
    return config


def _encoder_cache(text: str) -> EncoderCacheConfig | None:
    if _is_folder(text):
        # Absolute, since the line of a dry run may be run elsewhere.
        return EncoderCacheConfig(directory=os.path.abspath(os.path.expanduser(text)))
    return section_from("--encoder-cache", text, EncoderCacheConfig, '{"memory_size": "2GB"}')


def _sized(config: EncoderCacheConfig | None, size: str | None) -> EncoderCacheConfig | None:
    if size is None:
        return config
    if config is None or config.folder() is None:
        raise MmspecError(
            f"--encoder-cache-size {size}: there is no folder to limit; name one with --encoder-cache"
        )
    if "disk_size" in config.model_fields_set:
        raise MmspecError("--encoder-cache-size and disk_size are both given; give only one of them")
    return EncoderCacheConfig(**config.model_dump(exclude_unset=True), disk_size=size)


def _is_folder(text: str) -> bool:
    """Whether it names a folder: a single word only where there is one, so that a misspelt `on` makes none."""
    if text in ("on", "off") or text.lstrip().startswith("{"):
        return False
    return os.sep in text or text in (".", "..", "~") or Path(text).is_dir()
