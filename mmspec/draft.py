"""From a drafting configuration to vLLM's `speculative_config`; problems are named before weights load."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeGuard

from mmspec.config import DRAFT_METHODS, DraftConfig, DraftMethod, draft_config
from mmspec.errors import MmspecError
from mmspec.models import POCKET, resolve_checkpoint

# The default: a packaged head where there is one for the target, otherwise prompt lookup, which needs no weights.
AUTO = "auto"
# Longer drafts cost more to verify than they gain while acceptance is that of an unknown head.
_DEFAULT_TOKENS = 4
_ARCTIC = "arctic_inference"


def packaged_head(model: str) -> str | None:
    """The folder of the head that comes with mmspec for `model`, as the user calls it; None if there is none."""
    if model != POCKET:
        return None
    from mmspec.heads.pocket import head_folder

    folder = head_folder()
    return str(folder) if folder else None


def draft_on(model: str, draft: DraftConfig | str | None) -> DraftConfig:
    """How to draft for `model`: "auto" and an eagle3 without a head become the packaged head where there is one, with
    the number of tokens that suits it.

    Args:
        model: the target as the user calls it.
        draft: a configuration, a method's name, "auto", or None for no drafting.

    Raises:
        MmspecError: no method has this name.
    """
    if isinstance(draft, str):
        require_known(draft)
    head = packaged_head(model)
    if draft == AUTO:
        draft = "eagle3" if head else "ngram"
    config = draft_config(draft)
    if config.method == "eagle3" and config.model is None and head:
        from mmspec.heads.pocket import TOKENS

        tokens = config.num_speculative_tokens or TOKENS
        return config.model_copy(update={"model": head, "num_speculative_tokens": tokens})
    return config


def require_known(method: str) -> None:
    """Raises MmspecError for what is neither "auto" nor a drafting method's name."""
    if method not in (AUTO, *DRAFT_METHODS):
        *choices, last = AUTO, *DRAFT_METHODS
        raise MmspecError(f"draft.method: unknown value {method!r}; choose {', '.join(choices)} or {last}")


def speculative_config(draft: DraftConfig) -> dict[str, Any] | None:
    """What to give vLLM as `speculative_config`; None when drafting is off.

    Raises:
        MmspecError: a draft model is needed, missing, not wanted or of the wrong kind, a number of tokens where nothing
            is drafted, or a package is not installed.
    """
    if draft.method in ("none", "ngram", "suffix") and draft.model is not None:
        raise MmspecError(
            f"draft: {draft.method} takes no model; leave {draft.model} out or choose draft_model or eagle3"
        )
    config: dict[str, Any] = {"method": draft.method, "num_speculative_tokens": draft.num_speculative_tokens}
    match draft.method:
        case "none":
            if draft.num_speculative_tokens is not None:
                raise MmspecError(
                    "draft: none drafts nothing; leave num_speculative_tokens (-k) out, or choose another method"
                )
            return None
        case "ngram":
            config |= {
                "prompt_lookup_min": draft.prompt_lookup_min,
                "prompt_lookup_max": draft.prompt_lookup_max,
            }
        case "suffix":
            if find_spec(_ARCTIC) is None:
                raise MmspecError(
                    "draft: suffix needs the package arctic-inference; pip install arctic-inference==0.1.1"
                )
        case "draft_model" | "eagle3":
            config["model"] = _draft_checkpoint(draft)
            require_language_model(config)
    if config["num_speculative_tokens"] is None:
        # Suffix decoding chooses the length of each draft itself.
        config["num_speculative_tokens"] = 16 if draft.method == "suffix" else _DEFAULT_TOKENS
    return config | draft.options


def drafts_with_head(speculative: Mapping[str, Any] | None) -> TypeGuard[Mapping[str, Any]]:
    """Whether vLLM's `speculative_config` names an EAGLE-3 head."""
    return (
        speculative is not None and speculative.get("method") == "eagle3" and bool(speculative.get("model"))
    )


def require_fitting_head(
    speculative: Mapping[str, Any],
    target: str,
    *,
    tensor_parallel_size: int | None = None,
    dtype: Any = None,
) -> None:
    """Raises MmspecError when the EAGLE-3 head that vLLM is to draft with does not fit `target`.

    Args:
        speculative: what vLLM is given as `speculative_config`.
        target: the target's folder or hub name.
        tensor_parallel_size: of the target, where known.
        dtype: what the engine was told to run in.
    """
    from mmspec.heads.check import require_fit

    require_fit(
        speculative["model"],
        target,
        draft_tensor_parallel_size=speculative.get("draft_tensor_parallel_size") or tensor_parallel_size or 1,
        tensor_parallel_size=tensor_parallel_size,
        dtype=None if dtype is None else str(dtype),
    )


def require_language_model(speculative: Mapping[str, Any]) -> None:
    """Raises MmspecError when the draft model that vLLM is to draft with is an EAGLE-3 head."""
    model = speculative.get("model")
    if speculative.get("method") != "draft_model" or not model or not Path(model).is_dir():
        return
    from mmspec.heads.formats.head import is_head

    if is_head(Path(model)):
        raise MmspecError(
            f"draft: {model} is an EAGLE-3 head and no language model; choose eagle3 in place of draft_model "
            "(--draft eagle3)"
        )


def available_methods(draft_model: str | None = None, head: str | None = None) -> list[DraftMethod]:
    """The drafting methods that can run here, given what models are at hand; without "none"."""
    needs: dict[DraftMethod, bool] = {
        "ngram": True,
        "suffix": find_spec(_ARCTIC) is not None,
        "draft_model": draft_model is not None,
        "eagle3": head is not None,
    }
    return [method for method in DRAFT_METHODS if needs.get(method, False)]


def draft_for(method: str, draft_model: str | None, head: str | None, tokens: int | None) -> DraftConfig:
    """A method's configuration, with the model that belongs to it of the two."""
    model = {"draft_model": draft_model, "eagle3": head}.get(method)
    return DraftConfig.given(method=method, model=model, num_speculative_tokens=tokens)


def _draft_checkpoint(draft: DraftConfig) -> str:
    kind = "an EAGLE-3 head" if draft.method == "eagle3" else "a text-only draft model of the same vocabulary"
    if draft.model is None:
        raise MmspecError(
            f"draft: {draft.method} needs a model; name a folder or hub name of {kind} (--draft-model)"
        )
    return resolve_checkpoint(draft.model, "draft model", f"the folder or hub name of {kind}")
