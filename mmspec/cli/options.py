"""Options that several sub-commands share."""

import os
from json import JSONDecodeError, loads
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from mmspec.config import DRAFT_METHODS, DraftConfig, EncoderCacheConfig, FastVConfig, IntakeConfig
from mmspec.draft import AUTO, draft_on, require_known, speculative_config
from mmspec.encoders.fastv.settings import DEFAULTS as FASTV
from mmspec.encoders.fastv.settings import SCORES
from mmspec.errors import MmspecError

Section = TypeVar("Section", EncoderCacheConfig, IntakeConfig)

Model = Annotated[str, typer.Option("--model", help="pocket, a checkpoint folder, or a hub name.")]
Draft = Annotated[
    str,
    typer.Option(
        "--draft",
        help=f"How tokens are drafted: {', '.join(DRAFT_METHODS)}; auto is the head that comes with mmspec for the "
        "model, otherwise ngram.",
    ),
]
DraftModel = Annotated[
    str | None, typer.Option("--draft-model", help="Folder or hub name of the draft model or EAGLE-3 head.")
]
Head = Annotated[
    str | None,
    typer.Option(
        "--head",
        help="Folder or hub name of an EAGLE-3 head.",
        show_default="the one that comes with mmspec for the model",
    ),
]
Tokens = Annotated[
    int | None,
    typer.Option("-k", "--num-speculative-tokens", help="Most tokens drafted per step.", show_default="auto"),
]
FastVKeep = Annotated[
    float | None,
    typer.Option(
        "--fastv-keep",
        "--fastv",
        help="Share of the visual tokens that goes on behind --fastv-layer; 1 leaves it to each request.",
        show_default="no pruning",
    ),
]
FastVLayer = Annotated[
    int | None,
    typer.Option(
        "--fastv-layer",
        help="First layer that sees only the kept visual tokens.",
        show_default=str(FASTV.layer),
    ),
]
FastVScores = Annotated[
    str | None,
    typer.Option(
        "--fastv-scores",
        help=f"What ranks the visual tokens: {', '.join(SCORES)}.",
        show_default=FASTV.scores,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")]


def require_writable(path: Path) -> None:
    """Raises MmspecError when no file can be written there: asked before anything that takes long."""
    whole = path.expanduser().resolve()
    if whole.is_dir():
        raise MmspecError(f"{path} is a folder; name a file")
    above = next(folder for folder in whole.parents if folder.exists())
    if not above.is_dir():
        raise MmspecError(f"{path}: {above} is a file, and no folder")
    if not os.access(whole if whole.exists() else above, os.W_OK):
        raise MmspecError(f"{path}: no permission to write there")


def writable(path: Path | None) -> Path | None:
    if path is not None:
        require_writable(path)
    return path


Out = Annotated[
    Path | None,
    typer.Option("--out", help="Write the result with its provenance to this file.", callback=writable),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show the engine's log.")]
MaxModelLen = Annotated[
    int | None,
    typer.Option(
        "--max-model-len", help="Context length in tokens.", show_default="the model's, or what fits"
    ),
]
Pictures = Annotated[
    list[Path] | None, typer.Option("--image", help="A picture; may be given more than once.")
]

Intake = Annotated[
    str,
    typer.Option(
        "--intake", help="Picture intake: on, off (pictures are left to vLLM), or its options as JSON."
    ),
]


def room(max_model_len: int | None) -> dict[str, int]:
    """The engine argument of `--max-model-len`, if it was given."""
    return {"max_model_len": max_model_len} if max_model_len else {}


def section_from(option: str, text: str, section: type[Section], example: str) -> Section | None:
    """The typed form of an option that is on, off (None), or JSON.

    Args:
        example: such a JSON, for the refusal.

    Raises:
        MmspecError: none of these, or wrong options.
    """
    if text in ("on", "off"):
        return section() if text == "on" else None
    try:
        options = loads(text)
    except JSONDecodeError:
        options = None
    if not isinstance(options, dict):
        folder = " a folder such as ./features," if section is EncoderCacheConfig else ""
        raise MmspecError(f"{option} {text}: give on, off,{folder} or options as JSON, such as '{example}'")
    return section(**options)


def intake_from(text: str) -> IntakeConfig | None:
    """The typed form of `--intake`.

    Raises:
        MmspecError: not on, off, or options of the intake.
    """
    return section_from("--intake", text, IntakeConfig, '{"background": "black"}')


def draft_from(target: str, method: str, model: str | None, tokens: int | None) -> DraftConfig:
    """The typed form of the drafting options.

    Args:
        target: the model that answers, as the user calls it.
        method: a drafting method's name, or "auto".
        model: of the draft.
        tokens: drafted a step at most.

    Raises:
        MmspecError: an unknown method or a wrong number of tokens.
    """
    if method == AUTO:
        if model is not None:
            raise MmspecError(
                f"draft: --draft-model {model} is given without a method; add --draft eagle3 or draft_model"
            )
        method = draft_on(target, AUTO).method
    require_known(method)
    return draft_on(target, DraftConfig.given(method=method, model=model, num_speculative_tokens=tokens))


def fastv_from(keep: float | None, layer: int | None, scores: str | None) -> FastVConfig | None:
    """The typed form of the pruning options; None, no pruning, when none of them is given.

    Raises:
        MmspecError: a wrong value.
    """
    if keep is None and layer is None and scores is None:
        return None
    config = FastVConfig.given(keep=keep, layer=layer, scores=scores)
    if keep is None:
        raise MmspecError(
            "--fastv-layer and --fastv-scores say how to prune; say how much with --fastv-keep, "
            "1.0 to leave it to requests"
        )
    return config


def drafting_with(model: str, head: str | None, **settings: Any) -> DraftConfig:
    """With `head`, or the one that comes with mmspec for `model`; its problems come before any engine starts."""
    draft = draft_on(model, DraftConfig(method="eagle3", model=head, **settings))
    if draft.model is None:
        raise MmspecError(f"no head comes with mmspec for {model}; name one with --head")
    speculative_config(draft)
    return draft
