"""How much faster does drafting make answers? Drafting off and on in turn, on the same prompts in one process."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from statistics import median, quantiles
from typing import Any

from mmspec.bench.prompts import Prompt
from mmspec.config import DraftConfig
from mmspec.errors import MmspecError
from mmspec.heads.evaluate import mean_acceptance_length
from mmspec.stats import RequestStats


@dataclass(frozen=True)
class Case:
    """One way of asking: the prompts, how many at once, the temperature, and extra arguments of the requests."""

    prompts: Sequence[Prompt]
    batch: int = 1
    temperature: float = 0.0
    extra_args: dict[str, Any] = field(default_factory=dict)

    def first(self, count: int) -> "Case":
        return replace(self, prompts=self.prompts[: count * self.batch])


@dataclass(frozen=True)
class Speed:
    """What drafting brought in one case.

    Attributes:
        mean_acceptance_length: tokens per verification, the bonus token included, over all answers.
        tpot_speedup: median over pairs of (time per output token without) / (with drafting).
        spread: first and third quartile of the same.
        best_k: drafted tokens a step that were fastest in the sweep, and with which this was measured.
        pairs: how many.
    """

    mean_acceptance_length: float
    tpot_speedup: float
    spread: tuple[float, float]
    best_k: int
    pairs: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Pairs:
    speedups: list[float]
    drafts: int
    accepted: int


def measure(
    model: str,
    draft: DraftConfig,
    cases: dict[str, Case],
    *,
    ks: Sequence[int],
    sweep: int = 4,
    repeats: int = 1,
    max_tokens: int = 128,
    report: Callable[[str], None] = lambda line: None,
    **vllm_kwargs: Any,
) -> dict[str, Speed]:
    """Finds the best number of drafted tokens for each case, and measures each case with it.

    Args:
        ks: numbers of drafted tokens a step to try.
        sweep: prompts (or batches) of each case to try them on; with one `k` there is no sweep.
        repeats: times that each case is measured.
    """
    engine = {"model": model, "max_num_seqs": 8, **vllm_kwargs}
    with _opened(engine, DraftConfig(method="none")) as off:
        best = dict.fromkeys(cases, ks[0])
        if len(ks) > 1:
            few = {name: case.first(sweep) for name, case in cases.items()}
            tried = {k: _with(k, off, engine, draft, few, 1, max_tokens, report) for k in ks}
            best = {name: fastest({k: tried[k][name] for k in ks}) for name in cases}
        results: dict[str, Speed] = {}
        for k in sorted(set(best.values())):
            chosen = {name: case for name, case in cases.items() if best[name] == k}
            results |= _with(k, off, engine, draft, chosen, repeats, max_tokens, report)
    return {name: results[name] for name in cases}


def sweep(
    model: str,
    draft: DraftConfig,
    cases: dict[str, Case],
    *,
    ks: Sequence[int],
    repeats: int = 1,
    max_tokens: int = 128,
    report: Callable[[str], None] = lambda line: None,
    **vllm_kwargs: Any,
) -> dict[str, dict[int, Speed]]:
    """Measures each case with every number of drafted tokens a step; arguments as for `measure`."""
    engine = {"model": model, **vllm_kwargs}
    with _opened(engine, DraftConfig(method="none")) as off:
        tried = {k: _with(k, off, engine, draft, cases, repeats, max_tokens, report) for k in ks}
    return {name: {k: tried[k][name] for k in ks} for name in cases}


def fastest(by_k: dict[int, Speed]) -> int:
    """The number of drafted tokens with the largest speed-up, the smaller one of two alike."""
    return min(by_k, key=lambda k: (-by_k[k].tpot_speedup, k))


def _with(
    k: int,
    off: Any,
    engine: dict[str, Any],
    draft: DraftConfig,
    cases: dict[str, Case],
    repeats: int,
    max_tokens: int,
    report: Callable[[str], None],
) -> dict[str, Speed]:
    """Every case with `k` drafted tokens a step, against an engine that does not draft."""
    found = {}
    with _opened(engine, draft.model_copy(update={"num_speculative_tokens": k})) as on:
        for name, case in cases.items():
            report(f"{name}, {k} drafted tokens a step")
            found[name] = _speed([_pairs(off, on, case, max_tokens) for _ in range(repeats)], k)
    return found


@contextmanager
def _opened(engine: dict[str, Any], draft: DraftConfig) -> Iterator[Any]:
    from mmspec.llm import LLM

    llm = LLM(draft=draft, **engine)
    try:
        yield llm
    finally:
        llm.close()


def _pairs(off: Any, on: Any, case: Case, max_tokens: int) -> _Pairs:
    speedups: list[float] = []
    drafts = accepted = 0
    _ask(off, case.prompts[: case.batch], case, 4)
    _ask(on, case.prompts[: case.batch], case, 4)
    for number, start in enumerate(range(0, len(case.prompts), case.batch)):
        prompts = case.prompts[start : start + case.batch]
        # Whoever comes second finds the machine warm: they take turns.
        order = (off, on) if number % 2 == 0 else (on, off)
        stats = {id(llm): _ask(llm, prompts, case, max_tokens) for llm in order}
        speedups += _ratios(stats[id(off)], stats[id(on)])
        drafts += sum(one.drafts for one in stats[id(on)])
        accepted += sum(one.accepted_tokens for one in stats[id(on)])
    if not speedups:
        raise MmspecError("no answer had a second token, so there is no time per token to compare")
    return _Pairs(speedups, drafts, accepted)


def _ask(llm: Any, prompts: Sequence[Prompt], case: Case, max_tokens: int) -> list[RequestStats]:
    from vllm import SamplingParams

    sampling = SamplingParams(
        temperature=case.temperature, max_tokens=max_tokens, seed=0, extra_args=case.extra_args or None
    )
    outputs = llm.chat([prompt.messages() for prompt in prompts], sampling, use_tqdm=False)
    return [output.mmspec for output in outputs]


def _ratios(off: Sequence[RequestStats], on: Sequence[RequestStats]) -> list[float]:
    return [a.tpot_ms / b.tpot_ms for a, b in zip(off, on, strict=True) if a.tpot_ms and b.tpot_ms]


def _speed(found: Sequence[_Pairs], k: int) -> Speed:
    speedups = [ratio for pairs in found for ratio in pairs.speedups]
    drafts, accepted = sum(p.drafts for p in found), sum(p.accepted for p in found)
    low, high = (quantiles(speedups, n=4)[::2]) if len(speedups) > 1 else (speedups[0], speedups[0])
    return Speed(
        mean_acceptance_length=mean_acceptance_length(accepted, drafts),
        tpot_speedup=median(speedups),
        spread=(low, high),
        best_k=k,
        pairs=len(speedups),
    )
