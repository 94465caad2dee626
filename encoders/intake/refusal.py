"""A picture that cannot be taken in."""

from mmspec.errors import MmspecError


class PictureRefused(MmspecError):
    """Why a picture is refused and what would be taken, as one sentence without the picture's name."""
