"""`mmspec serve --dry-run` with sets of flags, as JSON: `python -m tests.serve.dry_runs MODEL '[[FLAG, …], …]'`.

One process for all of them, since importing vLLM is most of the work.
"""

import json
import sys
from dataclasses import asdict
from typing import Any

from mmspec.cli.main import main
from tests.serve.captured import run


def dry_run(model: str, flags: list[str]) -> dict[str, Any]:
    return asdict(run(lambda: main(["serve", model, *flags, "--dry-run"])))


if __name__ == "__main__":
    served, given = sys.argv[1:]
    print(json.dumps([dry_run(served, flags) for flags in json.loads(given)]), flush=True)
