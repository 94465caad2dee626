"""What a user can ask of the vision side, typed: the feature cache, pruning, intake."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from mmspec.config_base import Options
from mmspec.config_errors import suggest
from mmspec.encoders.fastv.settings import DEFAULTS as FASTV_DEFAULTS
from mmspec.encoders.fastv.settings import SCORES, FastVSettings
from mmspec.encoders.intake.settings import DEFAULTS as INTAKE_DEFAULTS
from mmspec.encoders.intake.settings import MIN_SIDE, MOST_PIXELS, IntakeSettings
from mmspec.errors import MmspecError


class EncoderCacheConfig(Options):
    """The vision-feature cache behind vLLM's own encoder cache. Without any tier named, the disk tier is on."""

    section: ClassVar[str] = "encoder_cache"

    directory: str | None = Field(
        default=None,
        description="folder of the disk tier, shared by engines and restarts; the user's cache folder where no tier "
        "is named",
    )
    disk_size: str = Field(default="20GB", description="most bytes that the disk tier keeps, with a unit")
    memory_size: str | None = Field(
        default=None, description="most bytes that the host-memory tier keeps, with a unit"
    )
    remote: str | None = Field(default=None, description="address of the remote tier, redis://host:port")
    remote_ttl: str = Field(default="7d", description="how long entries of the remote tier live: 12h, 7d")
    queue_size: str = Field(
        default="256MiB", description="most bytes that wait to be saved, for each tier and on the device"
    )
    namespace: str = Field(default="", description="keeps tenants apart: features never cross namespaces")
    trust_ids: bool = Field(
        default=False, description="let ids given by users name entries of persistent tiers"
    )
    role: Literal["both", "producer", "consumer"] = Field(
        default="both",
        description="producer encodes and saves without answering, consumer loads without saving; an engine does both",
    )

    @model_validator(mode="after")
    def _limits_can_be_read(self) -> EncoderCacheConfig:
        from mmspec.encoders.cache.remote import require_client, shown_address  # here: they import numpy
        from mmspec.encoders.cache.sizes import parse_duration, parse_size

        for name in ("disk_size", "memory_size", "queue_size"):
            if (size := getattr(self, name)) is not None:
                parse_size(size, f"encoder_cache.{name}")
        parse_duration(self.remote_ttl, "encoder_cache.remote_ttl")
        if self.remote is not None:
            shown_address(self.remote)
        if self.remote is not None and self.directory is None and self.memory_size is None:
            raise MmspecError(
                "encoder_cache: remote needs a tier on this machine, where what comes over the network is put; "
                "give memory_size or directory"
            )
        if self.remote is not None:
            require_client()
        return self

    def folder(self) -> Path | None:
        """Of the disk tier; None where there is no such tier."""
        if self.directory is not None:
            return Path(os.path.expanduser(self.directory))
        if self.memory_size is not None or self.remote is not None:
            return None
        from mmspec.encoders.cache.opening import default_directory  # here: it imports numpy

        return default_directory()


class FastVConfig(Options):
    """Visual-token pruning in prefill: which tokens go on behind layer `layer`."""

    section: ClassVar[str] = "fastv"

    layer: int = Field(
        default=FASTV_DEFAULTS.layer,
        ge=1,
        description="the first layer that sees only the kept visual tokens (K)",
    )
    keep: float = Field(
        default=FASTV_DEFAULTS.keep,
        gt=0,
        le=1,
        description="share of the visual tokens that goes on; 1.0 keeps all, unless a request asks for less",
    )
    keep_tokens: int | None = Field(
        default=None, ge=1, description="most visual tokens that go on, in place of the share"
    )
    scores: str = Field(
        default=FASTV_DEFAULTS.scores,
        description="what ranks the visual tokens; last is FastV as published",
    )
    per_image: bool = Field(
        default=FASTV_DEFAULTS.per_image,
        description="apply share or number to each image instead of to all of a prompt",
    )

    @field_validator("scores")
    @classmethod
    def _scores_are_known(cls, value: str) -> str:
        if value not in SCORES:
            raise MmspecError(f"fastv.scores: unknown criterion {value!r}; {suggest(value, SCORES)}")
        return value

    @model_validator(mode="after")
    def _share_or_number(self) -> FastVConfig:
        if self.keep_tokens is not None and "keep" in self.model_fields_set:
            raise MmspecError("fastv: keep and keep_tokens are both given; give only one of them")
        return self

    def settings(self) -> FastVSettings:
        return FastVSettings(**self.model_dump())


class IntakeConfig(Options):
    """How pictures are taken in before the processor sees them."""

    section: ClassVar[str] = "intake"

    max_bytes: int = Field(
        default=INTAKE_DEFAULTS.max_bytes, gt=0, description="largest file accepted, in bytes"
    )
    max_pixels: int = Field(
        default=INTAKE_DEFAULTS.max_pixels,
        ge=MIN_SIDE**2,
        le=MOST_PIXELS,
        description="largest picture accepted, in pixels, before decoding",
    )
    max_aspect_ratio: float = Field(
        default=INTAKE_DEFAULTS.max_aspect_ratio,
        ge=2,
        le=200,
        description="longer pictures are padded until the sides differ by no more than this factor",
    )
    background: str = Field(
        default=INTAKE_DEFAULTS.background, description="colour behind transparent and around padded pictures"
    )

    @field_validator("background")
    @classmethod
    def _background_is_an_opaque_colour(cls, value: str) -> str:
        from PIL import ImageColor  # here, since importing mmspec imports no Pillow

        try:
            opaque = len(ImageColor.getrgb(value)) == 3
        except ValueError:
            opaque = False
        if not opaque:
            raise MmspecError(
                f"intake.background: {value!r} is no opaque colour; give a name such as white, or #rrggbb"
            )
        return value

    def settings(self) -> IntakeSettings:
        return IntakeSettings(**self.model_dump())
