"""`python -m tests.tiny FOLDER`: every tiny checkpoint, for use by hand."""

import sys
from pathlib import Path

from tests.tiny import CHECKPOINTS, build_checkpoint

for name in CHECKPOINTS:
    print(build_checkpoint(name, Path(sys.argv[1]) / name))
