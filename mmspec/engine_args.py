"""Between mmspec's configuration and vLLM's engine arguments."""

from typing import Any, Literal

from mmspec.cache_args import close_features_door, switch_cache_on
from mmspec.compat import require_vllm
from mmspec.config import MmspecConfig
from mmspec.defaults import keep_thread_count
from mmspec.draft import (
    drafts_with_head,
    require_fitting_head,
    require_language_model,
    speculative_config,
)
from mmspec.encoders.fastv.check import require_prunable, settle_layer
from mmspec.encoders.intake.serving import warn_where_unused
from mmspec.errors import MmspecError
from mmspec.plugin import require_allowed

KEY = "mmspec"
_SCHEDULER = "mmspec.scheduler.build_scheduler"
_ASKED_SCHEDULER = "mmspec.scheduler.build_asked_scheduler"
_TELLING_WORKER = "mmspec.encoders.fastv.telling.TellingWorker"


Statistics = Literal["all", "asked"]


def engine_kwargs(config: MmspecConfig, *, statistics: Statistics | bool = "all") -> dict[str, Any]:
    """The arguments that make a plain `vllm.LLM` or `AsyncEngineArgs` do what `config` asks for.

    Args:
        config: what is wanted.
        statistics: whether finished requests report encoder-cache hits and visual tokens, which
            `mmspec.stats.request_stats` reads from the output: "all" (or True), those that have "asked" for it with
            `mmspec_stats` in their extra arguments, or False. The first two take a scheduler of ours, which also lets a
            request do without drafting. With pruning it is there in any case, since it keeps prompts that are to be
            pruned in one piece.

    Raises:
        MmspecError: a draft model that is missing, a package that is not installed, a vLLM that does not fit.
    """
    require_vllm()
    require_allowed()
    arguments: dict[str, Any] = {"additional_config": {KEY: config.to_options()}}
    speculative = speculative_config(config.draft) if config.draft else None
    if speculative is not None:
        arguments["speculative_config"] = speculative
        arguments["per_request_spec_decode_metrics"] = "summary"
    if statistics == "asked":
        arguments["scheduler_cls"] = _ASKED_SCHEDULER
    elif statistics or config.fastv is not None:
        arguments["scheduler_cls"] = _SCHEDULER
    return arguments


def fill_engine_args(args: Any) -> None:
    """Parses `additional_config["mmspec"]` of vLLM's `EngineArgs` and sets what it asks for.

    Raises:
        MmspecError: wrong options, or options that contradict vLLM's own.
    """
    keep_thread_count()
    config = MmspecConfig.parse(args.additional_config[KEY])
    # Whoever reads them later finds values of the right types: "5" is taken for 5 here.
    args.additional_config = args.additional_config | {KEY: config.to_options()}
    if config.intake is not None:
        _switch_intake_on(args)
    if config.encoder_cache is not None:
        switch_cache_on(args, config.encoder_cache)
    if config.fastv is not None:
        args.scheduler_cls = args.scheduler_cls or _SCHEDULER
        args.worker_extension_cls = args.worker_extension_cls or _TELLING_WORKER
    wanted = engine_kwargs(config, statistics=False).get("speculative_config")
    given = args.speculative_config
    if config.draft is not None and given is not None and given.get("method") != config.draft.method:
        raise MmspecError(
            f"draft: additional_config asks for {config.draft.method}, "
            f"speculative_config for {given.get('method')}; give only one of them"
        )
    if given is None:
        args.speculative_config = wanted
    else:
        require_language_model(given)
    if drafts_with_head(args.speculative_config):
        size, dtype = args.tensor_parallel_size, args.dtype
        require_fitting_head(args.speculative_config, args.model, tensor_parallel_size=size, dtype=dtype)
    if args.speculative_config is not None and args.per_request_spec_decode_metrics == "none":
        args.per_request_spec_decode_metrics = "summary"


def _switch_intake_on(args: Any) -> None:
    if (args.media_io_kwargs or {}).get("image"):
        raise MmspecError(
            "intake: media_io_kwargs for images would not be heard; give intake's own options, such as "
            "background, or take intake out of the configuration"
        )
    from mmspec.encoders.intake.serving import install  # imports much of vLLM

    install()


def check_engine(vllm_config: Any, *, takes_features: bool = True) -> None:
    """Looks at a configured engine before its weights load.

    Args:
        takes_features: whether the user lets requests bring features instead of pictures (`enable_mm_embeds`).

    Raises:
        MmspecError: the target cannot take pictures, or not be pruned as asked.
    """
    model = vllm_config.model_config
    if not model.is_multimodal_model:
        raise MmspecError(
            f"model {model.model}: {', '.join(model.architectures)} is not multimodal; "
            "give a vision-language model, such as pocket, or use plain vLLM"
        )
    settle_layer(vllm_config)
    require_prunable(vllm_config)
    warn_where_unused(vllm_config)
    close_features_door(vllm_config, asked=takes_features)
