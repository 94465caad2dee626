"""What the sections of the configuration have in common."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from mmspec.config_errors import describe
from mmspec.errors import MmspecError


class Options(BaseModel):
    """Refuses unknown options and wrong values with one line that starts with the section's name."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    section: ClassVar[str]

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise MmspecError(describe(error, self.section, list(type(self).model_fields))) from None

    @classmethod
    def given(cls, **options: Any) -> Self:
        """With those options that are not None; the others keep their defaults."""
        return cls(**{name: value for name, value in options.items() if value is not None})
