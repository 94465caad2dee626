"""`python -m mmspec.environment`: mends this environment and says what it did; silent when all is well."""

import sys

from mmspec.environment.mend import mend
from mmspec.errors import MmspecError


def main() -> int:
    try:
        mending = mend()
    except MmspecError as error:
        print(f"mmspec: {error}", file=sys.stderr)
        return error.exit_code
    for line in mending.done:
        print(f"mended: {line}")
    for fault in mending.remaining:
        print(f"broken: {fault.package}: {fault.problem}; mend it with: {fault.command}", file=sys.stderr)
    return 1 if mending.remaining else 0


if __name__ == "__main__":
    sys.exit(main())
