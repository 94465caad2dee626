"""Picture intake: what people send becomes an upright, opaque RGB picture that a processor takes, or is refused.

`picture.take_in` is the one place; `connector` and `renderer` bring it into vLLM for requests of every door.
"""

from mmspec.encoders.intake.refusal import PictureRefused
from mmspec.encoders.intake.settings import IntakeSettings

__all__ = ["IntakeSettings", "PictureRefused"]
