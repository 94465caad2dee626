"""What is pruned, and how. Importing this imports neither torch nor vLLM."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Named here, so that a wrong name is refused before torch is imported; `scores` has what they do.
SCORES = ("last", "instruction", "debiased", "diverse", "random")


@dataclass(frozen=True, kw_only=True)
class FastVSettings:
    """An engine's pruning; a request may ask for another share.

    Attributes:
        layer: the first layer that sees only the kept visual tokens: K of the paper.
        keep: share of a prompt's visual tokens that goes on; 1.0 keeps all.
        keep_tokens: most visual tokens that go on, in place of the share.
        scores: what ranks the visual tokens.
        per_image: share or number hold for each picture, not for all of a prompt.
    """

    layer: int = 2
    keep: float = 0.5
    keep_tokens: int | None = None
    scores: str = "last"
    per_image: bool = False


DEFAULTS = FastVSettings()


def engine_settings(additional_config: Any) -> FastVSettings | None:
    """The settings that a vLLM engine was configured with in `additional_config["mmspec"]["fastv"]`, if any."""
    options = additional_config.get("mmspec") if isinstance(additional_config, Mapping) else None
    fastv = options.get("fastv") if isinstance(options, Mapping) else None
    return None if fastv is None else FastVSettings(**fastv)
