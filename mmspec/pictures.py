"""Picture files as parts of a chat message."""

import base64
from pathlib import Path
from typing import Any

from mmspec.encoders.intake import IntakeSettings, PictureRefused
from mmspec.encoders.intake.settings import DEFAULTS
from mmspec.errors import MmspecError


def picture_part(path: Path, intake: IntakeSettings = DEFAULTS) -> dict[str, Any]:
    """The picture as a message part with its bytes in a data URL, as a client of the server sends it.

    It is decoded here once, so that what the engine would refuse is refused before an engine starts.

    Args:
        intake: the engine's settings, as `IntakeConfig.settings` gives them.

    Raises:
        MmspecError: the file is missing, unreadable, or refused by the intake.
    """
    data = _read(path)
    return url_part(data, _check(path, data, intake))


def url_part(data: bytes, media_type: str = "application/octet-stream") -> dict[str, Any]:
    """A picture file's bytes as a message part, in a data URL."""
    encoded = base64.b64encode(data).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{encoded}"}}


def decoded(part: dict[str, Any], intake: IntakeSettings = DEFAULTS) -> Any:
    """The picture of a message part that `picture_part` made, as the model's processor gets it."""
    from mmspec.encoders.intake.picture import take_in

    data = part["image_url"]["url"].partition(",")[2]
    return take_in(base64.b64decode(data), intake).image


def user_message(text: str, pictures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A conversation of one question about `pictures`, which come first."""
    return [{"role": "user", "content": [*pictures, {"type": "text", "text": text}]}]


def _read(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise MmspecError(f"picture {path}: no such file; give the path of a picture") from None
    except IsADirectoryError:
        raise MmspecError(f"picture {path}: this is a folder; give the path of a picture") from None
    except OSError as error:
        raise MmspecError(
            f"picture {path}: cannot be read ({error.strerror}); check its permissions"
        ) from None
    return data


def _check(path: Path, data: bytes, intake: IntakeSettings) -> str:
    """The picture's media type."""
    from mmspec.encoders.intake.picture import take_in  # imports Pillow

    try:
        return take_in(data, intake).media_type
    except PictureRefused as refusal:
        raise MmspecError(f"picture {path}: {refusal}") from None
