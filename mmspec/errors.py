"""Errors that name their mend: the command line prints them as one line."""


class MmspecError(Exception):
    """What was given, what would work, where to look: in one line.

    Attributes:
        exit_code: what the command line exits with.
    """

    exit_code = 2
