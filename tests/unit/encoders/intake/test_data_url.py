"""Data URLs in every spelling that clients are known to send."""

import base64
import textwrap
from urllib.parse import quote, quote_from_bytes

import pytest

from mmspec.encoders.intake import PictureRefused
from mmspec.encoders.intake.data_url import is_data_url, read_data_url

# All bytes, and a length that base64 pads; + and / and their replacements all occur.
DATA = bytes(range(256)) + b"\xfb\xff\xbf" * 5 + b"x"
PLAIN = base64.b64encode(DATA).decode()
URL_SAFE = base64.urlsafe_b64encode(DATA).decode()


@pytest.mark.parametrize(
    "url",
    [
        f"data:image/png;base64,{PLAIN}",
        f"DATA:IMAGE/PNG;BASE64,{PLAIN}",
        f"Data:image/PNG;Base64,{PLAIN}",
        f"data:application/octet-stream;base64,{PLAIN}",
        f"data:text/html;charset=utf-8;base64,{PLAIN}",
        f"data:;base64,{PLAIN}",
        f"data:base64,{PLAIN}",
        f"data:image/png;name=a.png;base64,{PLAIN}",
        f"data:image/png; base64,{PLAIN}",
        f"data:image/png,{PLAIN}",
        f"data:,{PLAIN}",
        f"data:image/png;base64,{PLAIN.rstrip('=')}",
        f"data:image/png;base64,{URL_SAFE}",
        f"data:image/png,{URL_SAFE.rstrip('=')}",
        f"data:image/png;base64,{quote(PLAIN, safe='')}",
        "data:image/png;base64," + "\r\n".join(textwrap.wrap(PLAIN, 76)),
        "data:image/png," + "\n".join(textwrap.wrap(PLAIN, 76)) + "\n",
        f" \n data:image/png;base64,{PLAIN} ",
        "data:image/png," + quote_from_bytes(DATA),
    ],
)
def test_the_bytes_are_found(url: str) -> None:
    assert is_data_url(url)
    assert read_data_url(url, 1000) == DATA


@pytest.mark.parametrize(
    "url", ["https://host/data:image/png", "file:///data", "/data:/x.png", "", "dat", PLAIN]
)
def test_other_addresses_are_told_apart(url: str) -> None:
    assert not is_data_url(url)


@pytest.mark.parametrize(
    ("url", "refused"),
    [
        ("data:image/png;base64", "no comma"),
        ("data:", "no comma"),
        ("data:image/png;base64,a", "base64 is broken"),
        ("data:image/png;base64,ab!d", "base64 is broken"),
        ("data:image/png;base64,äöü", "base64 is broken"),
        (f"data:image/png;base64,{'A' * 1500}", "1125 bytes are more than 1000"),
        (f"data:image/png,{'A' * 1500}", "1125 bytes are more than 1000"),
    ],
)
def test_what_holds_no_data_is_refused(url: str, refused: str) -> None:
    with pytest.raises(PictureRefused, match=refused):
        read_data_url(url, 1000)


def test_nothing_is_nothing() -> None:
    assert read_data_url("data:image/png;base64,", 1000) == b""
