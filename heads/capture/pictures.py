"""Pictures that a prompts file names: their bytes, their pixels as serving sees them, and their key."""

import base64
import binascii
import hashlib
import re
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from mmspec.errors import MmspecError

_SECONDS = 30
_MOST_BYTES = 100_000_000
_DATA_URL = re.compile(r"data:(?P<header>[^,]*),(?P<data>.*)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Picture:
    """A decoded picture; the key is the sha256 of its mode, size and pixels."""

    image: Any  # PIL.Image.Image
    key: str


def open_picture(reference: str, folder: Path, decode: Callable[[bytes], Any] | None = None) -> Picture:
    """The picture behind a path (relative to `folder`), a file, http(s) or data URL.

    Args:
        decode: turns bytes into a PIL picture; vLLM's own intake by default.

    Raises:
        MmspecError: it cannot be read, with the reason.
    """
    name = reference if len(reference) <= 80 else f"{reference[:77]}..."
    try:
        image = (decode or _decode_as_served)(_read(reference, folder))
        image.load()
    except MmspecError as error:
        raise MmspecError(f"picture {name}: {error}") from None
    except OSError as error:
        raise MmspecError(f"picture {name}: {error.strerror or error}") from None
    except Exception as error:  # decoders raise many kinds for broken files
        raise MmspecError(f"picture {name}: not a whole picture ({error})") from None
    return Picture(image, picture_key(image))


def picture_key(image: Any) -> str:
    """The same for the same pixels, whatever file they came from."""
    digest = hashlib.sha256(f"{image.mode} {image.width}x{image.height} ".encode())
    digest.update(image.tobytes())
    return digest.hexdigest()


def _read(reference: str, folder: Path) -> bytes:
    if reference[:5].lower() == "data:":
        return _read_data_url(reference)
    scheme = urlsplit(reference).scheme.lower()
    if scheme in ("http", "https"):
        return _download(reference)
    if scheme == "file":
        return Path(unquote(urlsplit(reference).path)).read_bytes()
    return (folder / Path(reference).expanduser()).read_bytes()


def _read_data_url(url: str) -> bytes:
    match = _DATA_URL.match(url)
    if match is None:
        raise MmspecError("a data URL without a comma")
    if not match["header"].lower().endswith(";base64"):
        return unquote_to_bytes(match["data"])
    try:
        return base64.b64decode(match["data"], validate=True)
    except binascii.Error as error:
        raise MmspecError(f"a data URL whose base64 is broken ({error})") from None


def _download(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"User-Agent": "mmspec"})
    with urllib.request.urlopen(request, timeout=_SECONDS) as response:
        data: bytes = response.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise MmspecError(f"more than {_MOST_BYTES} bytes")
    return data


def _decode_as_served(data: bytes) -> Any:
    """Orientation, transparency and colours are settled as vLLM settles them for a request over HTTP."""
    from vllm.multimodal.media import ImageMediaIO

    decoded = ImageMediaIO().load_bytes(data)
    return getattr(decoded, "media", decoded)
