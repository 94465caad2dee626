"""The user's side of an engine that prunes: what a request may ask for, and how it is kept apart from others."""

import logging
from dataclasses import dataclass, field
from typing import Any

from mmspec.encoders.fastv.budget import KEEP, KEEP_TOKENS, Budget, engine_budget, requested_budget
from mmspec.encoders.fastv.fitting import longest_prompt, setting_to_raise
from mmspec.encoders.fastv.prompt import VISUAL
from mmspec.encoders.fastv.salt import own_salt
from mmspec.encoders.fastv.settings import FastVSettings, engine_settings
from mmspec.encoders.fastv.unpruned import TOO_LONG, Unpruned
from mmspec.errors import MmspecError

_log = logging.getLogger("vllm.plugins.mmspec")


@dataclass
class Door:
    """What an engine that prunes lets in.

    Attributes:
        longest: tokens of the longest prompt that fits one step.
        raise_for_more: the option that limits it.
        unpruned: counts what goes on whole.
    """

    settings: FastVSettings
    longest: int
    raise_for_more: str
    unpruned: Unpruned = field(repr=False)

    @classmethod
    def of(cls, vllm_config: Any) -> "Door | None":
        """None for an engine that does not prune."""
        settings = engine_settings(vllm_config.additional_config)
        if settings is None:
            return None
        model = vllm_config.model_config
        name = str(model.served_model_name or model.model)
        return cls(settings, longest_prompt(vllm_config), setting_to_raise(vllm_config), Unpruned(name))


def asked_budget(params: Any, settings: FastVSettings | None) -> Budget | None:
    """How much of its pictures a request wants kept, before anything is done for it; None when it says nothing.

    Args:
        params: vLLM's `SamplingParams`, or parameters of another kind of request.
        settings: the engine's, or None when it does not prune.

    Raises:
        MmspecError: a value that means nothing, or one that this engine cannot follow.
    """
    arguments = getattr(params, "extra_args", None) or {}
    budget = requested_budget(arguments)
    if budget is not None and settings is None and budget != Budget():
        given = KEEP if KEEP in arguments else KEEP_TOKENS
        raise MmspecError(
            f"{given}: this engine does not prune; start it with fastv in its configuration, such as --fastv-keep 1.0 "
            "for requests to choose, or leave it out"
        )
    return budget


def settle(request: Any, budget: Budget | None, door: Door) -> None:
    """Writes into a request (vLLM's `EngineCoreRequest`) what is to be kept of its pictures.

    What a pruned prompt leaves in the KV cache depends on the whole prompt, so its blocks are nobody else's: it gets a
    salt of its own, and does not look for others' blocks. Requests that are not pruned go on sharing theirs.

    Raises:
        MmspecError: pruning was asked for together with something that it would spoil.
    """
    params = request.sampling_params
    if params is None or not any(feature.modality in VISUAL for feature in request.mm_features or []):
        return
    asked, budget = budget is not None, budget or engine_budget(door.settings)
    arguments = {k: v for k, v in (params.extra_args or {}).items() if k not in (KEEP, KEEP_TOKENS)}
    prunes = budget != Budget()
    if prunes and (hindrance := _hindrance(request)):
        if asked:
            raise MmspecError(f"{KEEP}: a prompt with {hindrance} cannot be pruned; give {KEEP}=1.0")
        door.unpruned.note(hindrance, f"a prompt with {hindrance} is not pruned")
        prunes = False
    length = len(request.prompt_token_ids or ())
    if prunes and length > door.longest:
        door.unpruned.note(
            TOO_LONG,
            f"a prompt of {length} tokens is longer than a step of {door.longest} and is not pruned; "
            f"raise {door.raise_for_more}",
        )
        prunes = False
    params.extra_args = arguments | (budget.to_arguments() if prunes else {}) or None
    if prunes:
        request.cache_salt = own_salt(request.cache_salt)
        params.skip_reading_prefix_cache = True


def _hindrance(request: Any) -> str | None:
    params = request.sampling_params
    if params.prompt_logprobs is not None or params.prompt_logprob_token_ids is not None:
        return "prompt_logprobs"
    if request.resumable:
        return "input that goes on"
    if request.prompt_embeds is not None:
        return "prompt embeddings"
    return None
