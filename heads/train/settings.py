"""How a head is trained."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mmspec.config_errors import describe
from mmspec.errors import MmspecError
from mmspec.heads.config import Positions, Vision


class TrainSettings(BaseModel):
    """Everything that a training depends on besides its data."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    vision: Vision = Field(
        "features",
        description="what the head gets of pictures: text, placeholder tokens; features, the target's visual "
        "features; global, placeholders, and a summary for the text behind",
    )
    positions: Positions = Field("sequence", description="sequence indices, or the target's 3-D ids")
    layers: int = Field(1, ge=1, description="decoder layers of the head")
    intermediate_size: int | None = Field(
        None, ge=1, description="width of its MLP; the target's if not given"
    )
    summary_size: int = Field(256, ge=1, description="inner width of a global head's summary")
    draft_vocab_size: int = Field(32_000, ge=1, description="tokens that the head can say")
    norm_before_residual: bool = Field(True, description="as speculators' setting of that name")
    norm_output: bool = Field(False, description="as speculators' setting of that name")
    draft_steps: int = Field(7, ge=1, description="steps of training-time test")
    step_decay: float = Field(0.8, gt=0, le=1, description="weight of each step relative to the one before")
    rate: float = Field(1e-3, gt=0, description="peak learning rate")
    optimizer: Literal["adamw", "muon"] = Field(
        "muon", description="of the layers' matrices; AdamW for the rest"
    )
    steps: int = Field(2_000, ge=1, description="optimizer steps")
    warmup: int = Field(50, ge=0, description="steps of linear warm-up")
    batch_tokens: int = Field(2_048, ge=2, description="tokens of a forward pass, padding included")
    accumulate: int = Field(1, ge=1, description="forward passes of an optimizer step, in each process")
    save_every: int = Field(200, ge=1, description="steps between checkpoints and validations")
    validation_share: float = Field(0.05, gt=0, lt=1, description="of the samples, the last ones")
    validation_samples: int = Field(128, ge=1, description="at most so many of them")
    attention: Literal["eager", "sdpa"] = Field("sdpa", description="implementation of attention")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="of weights and activations")
    seed: int = 0

    @classmethod
    def parse(cls, given: dict[str, Any]) -> "TrainSettings":
        """Settings by name.

        Raises:
            MmspecError: an unknown name or a value that is not accepted, in one line.
        """
        try:
            return cls(**given)
        except ValidationError as error:
            raise MmspecError(describe(error, "settings", list(cls.model_fields))) from None
