"""Which prompts fit one step: one that is cut cannot be pruned, since its first part does not know the question."""

from typing import Any


def longest_prompt(vllm_config: Any) -> int:
    """Tokens of the longest prompt that fits a step which it has to itself, with drafting's slots beside it."""
    scheduler, drafting = vllm_config.scheduler_config, vllm_config.speculative_config
    slots = drafting.max_num_new_slots_for_drafting if drafting is not None else 0
    limits = [
        scheduler.max_num_scheduled_tokens,
        scheduler.max_num_batched_tokens - slots,
        scheduler.long_prefill_token_threshold,
    ]
    return int(min(limit for limit in limits if limit))


def setting_to_raise(vllm_config: Any) -> str:
    """The option that limits it."""
    threshold = vllm_config.scheduler_config.long_prefill_token_threshold
    if threshold and threshold == longest_prompt(vllm_config):
        return "--long-prefill-token-threshold"
    return "--max-num-batched-tokens"
