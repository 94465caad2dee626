"""Picture files as parts of a chat message."""

import base64
import io
import warnings
from pathlib import Path
from typing import Any

from mmspec.errors import MmspecError


def picture_part(path: Path) -> dict[str, Any]:
    """The picture as a message part with its bytes in a data URL, as a client of the server sends it.

    Raises:
        MmspecError: the file is missing, unreadable, or not a whole picture.
    """
    data = _read(path)
    encoded = base64.b64encode(data).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:{_check(path, data)};base64,{encoded}"}}


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
    if not data:
        raise MmspecError(f"picture {path}: the file is empty; give the path of a picture")
    return data


def _check(path: Path, data: bytes) -> str:
    """The picture's media type, after decoding it whole: the engine would stumble over a bad one later."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data)) as picture:
                picture.load()
                return Image.MIME.get(picture.format or "", "application/octet-stream")
    except UnidentifiedImageError:
        raise MmspecError(f"picture {path}: not a picture; give a PNG, JPEG, WebP or GIF file") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise MmspecError(
            f"picture {path}: more than {Image.MAX_IMAGE_PIXELS} pixels; scale it down first"
        ) from None
    except Exception as error:  # Pillow's decoders raise many kinds for broken files
        raise MmspecError(f"picture {path}: broken ({error}); save or download it again") from None
