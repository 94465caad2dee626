"""What mmspec adds to a head's config.json: one key, which stock vLLM and speculators pass over."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mmspec.errors import MmspecError

KEY = "mmspec"
# Weights of a head under this prefix read the picture; stock vLLM has no place for them.
VISION_WEIGHTS = "vision."

Vision = Literal["text", "features", "global"]
Positions = Literal["sequence", "mrope"]


class HeadConfig(BaseModel):
    """How a head was trained, and so has to be served. A head without the key is what stock vLLM takes it for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    vision: Vision = Field(
        default="text",
        description="what the head gets at image positions: text, the placeholder's embedding; features, the "
        "target's visual features; global, a learned summary of each picture for the text behind it",
    )
    positions: Positions = Field(
        default="sequence", description="sequence indices 0, 1, 2, ..., or the target's 3-D ids"
    )
    summary_size: int | None = Field(
        default=None, description="global: inner width of what turns a pooled picture into its summary"
    )
    target_fingerprint: str | None = Field(
        default=None, description="what capture's manifest calls the target that the head was trained for"
    )

    @classmethod
    def of(cls, config: Mapping[str, Any], head: object = "head") -> "HeadConfig":
        """The settings in a head's configuration; the defaults where it has none.

        Args:
            config: the whole config.json.
            head: how an error calls the head.

        Raises:
            MmspecError: an unknown key or value, with the nearest right one.
        """
        given = config.get(KEY, {})
        if not isinstance(given, Mapping):
            raise MmspecError(
                f"{head}: '{KEY}' in config.json is {given!r}; make it an object, or leave it out"
            )
        try:
            return cls(**given)
        except ValidationError as error:
            raise MmspecError(f"{head}: '{KEY}' in config.json: {_describe(error)}") from None

    def into(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of a head's configuration that says how the head was trained."""
        return {**config, KEY: self.model_dump()}


def without_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a head's configuration as stock vLLM and speculators know it."""
    return {name: value for name, value in config.items() if name != KEY}


def _describe(error: ValidationError) -> str:
    """The first finding, with its mend."""
    finding = error.errors(include_url=False)[0]
    name = str(finding["loc"][-1]) if finding["loc"] else ""
    known = list(HeadConfig.model_fields)
    if finding["type"] == "extra_forbidden":
        close = get_close_matches(name, known, n=1)
        return f"unknown key '{name}'; " + (
            f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"
        )
    choices = {"vision": get_args(Vision), "positions": get_args(Positions)}.get(name)
    wanted = f"choose {', '.join(choices[:-1])} or {choices[-1]}" if choices else finding["msg"].lower()
    return f"{name} is {finding['input']!r}; {wanted}"
