"""What a user can ask of mmspec, typed: parsed from `additional_config["mmspec"]`, or built in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

from pydantic import Field, field_validator, model_validator

from mmspec.config_base import Options
from mmspec.config_vision import EncoderCacheConfig, FastVConfig, IntakeConfig
from mmspec.errors import MmspecError

__all__ = [
    "DRAFT_METHODS",
    "DraftConfig",
    "DraftMethod",
    "EncoderCacheConfig",
    "FastVConfig",
    "IntakeConfig",
    "MmspecConfig",
    "draft_config",
]

DraftMethod = Literal["none", "ngram", "suffix", "draft_model", "eagle3"]
DRAFT_METHODS: tuple[DraftMethod, ...] = get_args(DraftMethod)


class DraftConfig(Options):
    """How tokens are drafted. The target verifies every one, so greedy answers stay the same."""

    section: ClassVar[str] = "draft"

    method: DraftMethod = Field(
        default="ngram", description="which drafter proposes tokens; none switches drafting off"
    )
    model: str | None = Field(
        default=None, description="folder or hub name of the draft model or the EAGLE-3 head"
    )
    num_speculative_tokens: int | None = Field(
        default=None,
        gt=0,
        le=128,  # vLLM's V1 ends at a step that verifies more (`MAX_SPEC_LEN` of its rejection sampler)
        description="tokens drafted per step at most; a default of the method when not given",
    )
    prompt_lookup_min: int = Field(
        default=2, gt=0, description="ngram: shortest run of tokens looked up in the text so far"
    )
    prompt_lookup_max: int = Field(
        default=4, gt=0, description="ngram: longest run of tokens looked up in the text so far"
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="further keys of vLLM's speculative_config, passed on unchanged"
    )

    @model_validator(mode="after")
    def _lookup_window_is_a_range(self) -> DraftConfig:
        if self.prompt_lookup_min > self.prompt_lookup_max:
            raise MmspecError(
                f"draft: prompt_lookup_min ({self.prompt_lookup_min}) is above prompt_lookup_max "
                f"({self.prompt_lookup_max}); give a smaller prompt_lookup_min"
            )
        return self


class MmspecConfig(Options):
    """Everything under `additional_config["mmspec"]`."""

    section: ClassVar[str] = "mmspec"

    draft: DraftConfig | None = Field(
        default=None, description="drafting; not given leaves vLLM's own setting alone"
    )
    encoder_cache: EncoderCacheConfig | None = Field(default=None, description="the vision-feature cache")
    fastv: FastVConfig | None = Field(default=None, description="visual-token pruning")
    intake: IntakeConfig | None = Field(default=None, description="picture intake")

    @field_validator("draft", mode="before")
    @classmethod
    def _method_name_is_enough(cls, value: Any) -> Any:
        return {"method": value} if isinstance(value, str) else value

    @classmethod
    def parse(cls, options: Any) -> MmspecConfig:
        """The typed form of `additional_config["mmspec"]`.

        Raises:
            MmspecError: an unknown option, a wrong value, or something that is not a mapping.
        """
        if not isinstance(options, Mapping):
            raise MmspecError(
                f"mmspec: expected a mapping of options like {{'draft': 'ngram'}}, got {options!r}"
            )
        return cls(**{str(key): value for key, value in options.items()})

    def to_options(self) -> dict[str, Any]:
        """The smallest mapping that `parse` turns back into this configuration."""
        return self.model_dump(mode="json", exclude_unset=True, exclude_none=True)


def draft_config(draft: DraftConfig | str | None) -> DraftConfig:
    """The drafting configuration that a name, a configuration, or None (off) stands for."""
    if isinstance(draft, DraftConfig):
        return draft
    return DraftConfig(**{"method": draft or "none"})
