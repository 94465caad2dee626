"""What is taken in, and how. Importing this imports neither Pillow nor vLLM."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The side of what Qwen2.5-VL makes one token of. It is also far above the three pixels up to which transformers may
# take a picture's height for its channels.
MIN_SIDE = 28
# Pillow opens nothing larger.
MOST_PIXELS = 178_956_970
# Part of the keys of changed pictures: raise it when the same file and settings give other pixels.
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class IntakeSettings:
    """Limits, and what fills transparent and missing places.

    Attributes:
        max_bytes: largest file, in bytes.
        max_pixels: largest picture, in pixels; looked at before decoding. The default is where Pillow begins to
            warn of decompression bombs.
        max_aspect_ratio: a picture that is longer than this many times its width is padded. Qwen-VL's
            processors refuse more than 200; of more than about 70 LLaVA-NeXT sees nothing.
        background: colour behind transparent and around padded pictures, as Pillow names colours.
    """

    max_bytes: int = 32 * 1024**2
    max_pixels: int = 89_478_485
    max_aspect_ratio: float = 50.0
    background: str = "white"

    @property
    def identity(self) -> dict[str, Any]:
        """What the pixels of a changed picture depend on, besides its file."""
        return {
            "mmspec_intake": VERSION,
            "background": self.background,
            "max_aspect_ratio": float(self.max_aspect_ratio),
        }


DEFAULTS = IntakeSettings()

# Given to vLLM's `allowed_media_domains`, which has no word for none, where a server is to fetch nothing.
NOWHERE = "nowhere.invalid"


def engine_settings(additional_config: Any) -> IntakeSettings | None:
    """The settings that a vLLM engine was configured with in `additional_config["mmspec"]["intake"]`, if any."""
    options = additional_config.get("mmspec") if isinstance(additional_config, Mapping) else None
    intake = options.get("intake") if isinstance(options, Mapping) else None
    return None if intake is None else IntakeSettings(**intake)
