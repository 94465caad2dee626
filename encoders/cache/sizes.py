"""Limits as people write them: bytes such as `20GB` and `512MiB`, times such as `7d`."""

import re
from decimal import Decimal

from mmspec.errors import MmspecError

# Decimal and binary units differ by 10 % at a terabyte, so both exist and neither stands for the other.
_BYTES = {"B": 1} | {
    f"{letter}{infix}B": base**power
    for infix, base in (("", 1000), ("i", 1024))
    for power, letter in enumerate("KMGTP", start=1)
}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_NUMBER_AND_UNIT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE | re.ASCII)


def parse_size(text: str | int, what: str = "size") -> int:
    """Bytes that a limit stands for; an `int` is bytes already.

    Args:
        text: a number with a unit, in any case: `20GB` is 20 × 10⁹ bytes, `20GiB` 20 × 2³⁰.
        what: the option's name, for the refusal.

    Raises:
        MmspecError: no number, no unit, an unknown unit, or less than one byte.
    """
    size = int(_parse(text, what, "a size", _BYTES, "20GB or 512MiB"))
    if size < 1:
        raise MmspecError(f"{what}: {text!r} is less than one byte; leave {what} out to switch the tier off")
    return size


def parse_duration(text: str | int, what: str = "time") -> float:
    """Seconds that a time stands for, such as `90s`, `30m`, `12h` or `7d`; an `int` is seconds already.

    Raises:
        MmspecError: no number, no unit, or an unknown unit.
    """
    return float(_parse(text, what, "a time", _SECONDS, "12h or 7d"))


def format_size(size: float) -> str:
    """Bytes for people, in decimal units and with three digits."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB" if size < 999.5 else f"{size:.0f} TB"


def _parse(text: str | int, what: str, kind: str, units: dict[str, int], example: str) -> Decimal:
    if isinstance(text, int) and not isinstance(text, bool):
        return Decimal(text)
    match = _NUMBER_AND_UNIT.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise MmspecError(f"{what}: {text!r} is not {kind}; write a number and a unit, like {example}")
    number, unit = match.groups()
    if not unit:
        raise MmspecError(f"{what}: {text!r} has no unit; write a number and a unit, like {example}")
    factor = {name.lower(): factor for name, factor in units.items()}.get(unit.lower())
    if factor is None:
        raise MmspecError(f"{what}: unknown unit {unit!r} in {text!r}; use one of {', '.join(units)}")
    return Decimal(number) * factor
