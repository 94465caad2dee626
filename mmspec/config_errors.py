"""Turns pydantic's findings into one line that names the mend."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from pydantic import ValidationError


def describe(error: ValidationError, section: str, options: Sequence[str]) -> str:
    """The first finding of `error`, as one line."""
    finding = error.errors(include_url=False)[0]
    path = ".".join([section, *(str(part) for part in finding["loc"])])
    if finding["type"] == "extra_forbidden":
        unknown = str(finding["loc"][-1])
        return f"{section}: unknown option '{unknown}'; {suggest(unknown, options)}"
    if finding["type"] == "literal_error":
        choices = finding["ctx"]["expected"].replace("'", "")
        return f"{path}: unknown value {finding['input']!r}; choose {choices}"
    reason = finding["msg"][0].lower() + finding["msg"][1:]
    return f"{path}: {finding['input']!r} is not accepted: {reason}"


def suggest(unknown: str, known: Iterable[str]) -> str:
    """'did you mean ...?' when one is close, otherwise all that is known."""
    known = list(known)
    close = get_close_matches(unknown, known, n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else f"known options: {', '.join(known)}"
