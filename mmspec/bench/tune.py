"""How many tokens should be drafted a step? Every number on the same prompts, for each batch size."""

from dataclasses import dataclass
from typing import Any

from mmspec.bench.speed import Speed, fastest


@dataclass(frozen=True)
class Advice:
    """What to give vLLM.

    Attributes:
        num_speculative_tokens: the most tokens that any batch size should draft a step; 0 where drafting never pays.
        schedule: `(first, last, tokens)` for ranges of batch sizes, in the form of vLLM's
            `num_speculative_tokens_per_batch_size`; 0 tokens where drafting is slower than none.
    """

    num_speculative_tokens: int
    schedule: list[tuple[int, int, int]]

    def speculative_options(self) -> dict[str, Any]:
        """Keys of vLLM's `speculative_config`; empty where drafting never pays."""
        if not self.num_speculative_tokens:
            return {}
        options: dict[str, Any] = {"num_speculative_tokens": self.num_speculative_tokens}
        if len({tokens for _, _, tokens in self.schedule}) > 1:
            options["num_speculative_tokens_per_batch_size"] = [list(entry) for entry in self.schedule]
        return options


def advise(by_batch: dict[int, dict[int, Speed]]) -> Advice:
    """The fastest number of drafted tokens for each measured batch size, which holds until the next larger one."""
    sizes = sorted(by_batch)
    tokens = [_worth_drafting(by_batch[size]) for size in sizes]
    firsts = [1, *sizes[1:]]
    lasts = [*(size - 1 for size in sizes[1:]), sizes[-1]]
    return Advice(max(tokens), list(zip(firsts, lasts, tokens, strict=True)))


def _worth_drafting(by_k: dict[int, Speed]) -> int:
    best = fastest(by_k)
    return best if by_k[best].tpot_speedup > 1 else 0


def tune_result(by_batch: dict[int, dict[int, Speed]]) -> dict[str, Any]:
    """What `mmspec tune --json` prints: every measurement by batch size and number of tokens, and the advice."""
    advice = advise(by_batch)
    measured = {
        str(size): {str(k): one.to_dict() for k, one in by_batch[size].items()} for size in sorted(by_batch)
    }
    return {
        "num_speculative_tokens": advice.num_speculative_tokens,
        "num_speculative_tokens_per_batch_size": [list(entry) for entry in advice.schedule],
        "measured": measured,
    }
