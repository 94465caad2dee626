"""`--show-kept`: the pictures of a question with the patches that were dropped dimmed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmspec.cli.options import require_writable
from mmspec.errors import MmspecError

if TYPE_CHECKING:
    from mmspec.config import FastVConfig
    from mmspec.encoders.fastv.recording import Kept


def require_drawable(path: Path, pictures: Sequence[Path], fastv: "FastVConfig | None") -> None:
    """Raises MmspecError when there will be nothing to draw, or no place for it."""
    from PIL import Image

    Image.init()
    if fastv is None:
        raise MmspecError("--show-kept: nothing is dropped; prune with --fastv-keep, such as 0.5")
    if not pictures:
        raise MmspecError("--show-kept: there is no picture; give one with --image")
    if path.suffix.lower() not in Image.EXTENSION:
        raise MmspecError(f"--show-kept {path}: no format for pictures; name a file such as kept.png")
    if not path.resolve().parent.is_dir():
        raise MmspecError(f"--show-kept {path}: there is no such folder; make it first")
    require_writable(path)


class Drawing:
    """Draws one answer's pictures to a file; without a path it does nothing.

    Args:
        path: of the drawing.
        pictures: files in the order of the prompt.
    """

    def __init__(self, path: Path | None, pictures: Sequence[Path]) -> None:
        self._path, self._pictures = path, pictures
        self._found: dict[str, Kept] = {}

    def listen(self, llm: Any) -> None:
        """To be called before the question is asked."""
        if self._path is not None:
            from mmspec.encoders.fastv.recording import record_kept

            self._found = record_kept(llm)

    def write(self, llm: Any) -> None:
        """Writes the drawing of the one question that was asked since `listen`."""
        if self._path is None:
            return
        from mmspec.encoders.fastv.drawing import as_seen, draw_kept
        from mmspec.encoders.intake.settings import DEFAULTS, engine_settings

        if not self._found:
            raise MmspecError("--show-kept: nothing was dropped; lower --fastv-keep")
        (kept,) = self._found.values()
        intake = engine_settings(llm.llm_engine.vllm_config.additional_config) or DEFAULTS
        crops = llm.model_config.hf_config.model_type == "llava"
        seen = [as_seen(path, intake, crops=crops) for path in self._pictures]
        draw_kept(seen, kept.pictures).save(self._path)
