"""Pictures in data URLs, as lenient as browsers are about them."""

import base64
import binascii
import re
from urllib.parse import unquote, unquote_to_bytes

from mmspec.encoders.intake.refusal import PictureRefused

_BASE64 = re.compile(r"[A-Za-z0-9+/_\-\r\n]+={0,2}[\r\n]*")
_URL_ALPHABET = str.maketrans("-_", "+/")
_BLANKS = re.compile(r"\s+")


def is_data_url(url: str) -> bool:
    """Whether `url` says that it holds its data, in any case."""
    return url.lstrip()[:5].lower() == "data:"


def read_data_url(url: str, max_bytes: int) -> bytes:
    """The bytes in a data URL; the type that it names is not looked at.

    Taken are base64 with and without padding, in both alphabets, with and without `;base64`, and percent-encoding.

    Raises:
        PictureRefused: there is no data, more than `max_bytes`, or broken base64.
    """
    header, comma, payload = url.lstrip()[5:].partition(",")
    if not comma:
        raise PictureRefused("its data URL has no comma; send data:image/png;base64, and the data")
    says_base64 = "base64" in (part.strip().lower() for part in header.split(";"))
    if not says_base64 and not _BASE64.fullmatch(payload):
        return unquote_to_bytes(payload)
    return _decode(payload, max_bytes)


def _decode(payload: str, max_bytes: int) -> bytes:
    text = (
        _BLANKS.sub("", unquote(payload) if "%" in payload else payload).rstrip("=").translate(_URL_ALPHABET)
    )
    if (size := len(text) * 3 // 4) > max_bytes:
        raise PictureRefused(f"{size} bytes are more than {max_bytes}; save it smaller")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        reason = str(error)
        raise PictureRefused(
            f"its base64 is broken ({reason[0].lower()}{reason[1:]}); send it again"
        ) from None
