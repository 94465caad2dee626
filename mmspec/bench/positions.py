"""What do right positions bring? The same head under stock vLLM and under mmspec, with and without pictures."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mmspec.config import DraftConfig
from mmspec.defaults import engine_defaults, keep_thread_count
from mmspec.draft import speculative_config
from mmspec.heads.evaluate import Acceptance, mean_acceptance_length
from mmspec.models import resolve_model
from mmspec.patches import IN_PROCESS, apply_missing
from mmspec.stats import request_stats


def compare(
    model: str,
    draft: DraftConfig,
    prompts: Mapping[str, Sequence[list[dict[str, Any]]]],
    *,
    max_tokens: int,
    report: Callable[[str], None] = lambda line: None,
    **vllm_kwargs: Any,
) -> dict[str, dict[str, Acceptance]]:
    """Greedy answers to each kind of prompt under both engines.

    Args:
        draft: an EAGLE-3 head.
        prompts: by kind ("image", "text"), conversations as chat messages.

    Returns:
        By kind and then by engine ("stock", "mmspec").
    """
    import vllm

    from mmspec.llm import LLM, close_engine

    given = {"dtype": "float32", "max_num_seqs": 8, **vllm_kwargs}
    engine = {"model": resolve_model(model), **(engine_defaults(model, given) | given)}
    apply_missing(IN_PROCESS)
    keep_thread_count()
    makers: dict[str, Callable[[], Any]] = {
        "stock": lambda: vllm.LLM(
            **engine,
            speculative_config=speculative_config(draft),
            per_request_spec_decode_metrics="summary",
            disable_log_stats=False,
        ),
        "mmspec": lambda: LLM(draft=draft, **engine),
    }
    found: dict[str, dict[str, Acceptance]] = {kind: {} for kind in prompts}
    for name, make in makers.items():
        report(f"{name} engine")
        llm = make()
        for kind, conversations in prompts.items():
            found[kind][name] = acceptance_in_engine(llm, conversations, max_tokens)
        close_engine(llm)
    return found


def acceptance_in_engine(
    llm: Any, conversations: Sequence[list[dict[str, Any]]], max_tokens: int, temperature: float = 0.0
) -> Acceptance:
    """What an engine that drafts accepted over all its answers to the conversations."""
    from vllm import SamplingParams

    sampling = [
        SamplingParams(temperature=temperature, max_tokens=max_tokens, seed=number)
        for number in range(len(conversations))
    ]
    stats = [request_stats(output) for output in llm.chat(list(conversations), sampling, use_tqdm=False)]
    drafts = sum(one.drafts for one in stats)
    width = max(len(one.accepted_per_position) for one in stats)
    counts = [
        sum(one.accepted_per_position[i] for one in stats if i < len(one.accepted_per_position))
        for i in range(width)
    ]
    return Acceptance(
        mean_acceptance_length=mean_acceptance_length(sum(counts), drafts),
        accepted_per_position=[count / drafts if drafts else 0.0 for count in counts],
        drafts=drafts,
    )
