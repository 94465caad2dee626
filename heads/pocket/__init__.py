"""The pocket VLM's EAGLE-3 head, trained by this project: where it lies, and whether this build has one."""

from pathlib import Path

TOKENS = 7
"""How many it drafts a step by default: what was fastest in benchmarks/results/speed.json."""

_FOLDER = Path(__file__).resolve().parent


def head_folder() -> Path | None:
    """The folder of the packaged head, as speculators writes heads; None in a build without its weights."""
    return _FOLDER if (_FOLDER / "model.safetensors").is_file() else None
