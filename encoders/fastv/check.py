"""Whether an engine can prune as it is configured: asked before any weights are loaded."""

from collections.abc import Iterator
from typing import Any

from mmspec.encoders.fastv.settings import FastVSettings, engine_settings
from mmspec.errors import MmspecError

FAMILIES = {
    "Qwen2_5_VLForConditionalGeneration": "Qwen2.5-VL",
    "Qwen3VLForConditionalGeneration": "Qwen3-VL",
    "LlavaForConditionalGeneration": "LLaVA",
}


def settle_layer(vllm_config: Any) -> None:
    """Where `fastv` names no layer, writes down which it is: at least the first one behind DeepStack.

    DeepStack writes into the first layers. What vLLM keeps of compiling is named by the configuration, the layer in it.
    """
    settings = engine_settings(getattr(vllm_config, "additional_config", None))
    if settings is None:
        return
    options = vllm_config.additional_config["mmspec"]
    layer = max(settings.layer, _written_layers(vllm_config.model_config.hf_config))
    if "layer" not in options["fastv"]:
        fastv = {**options["fastv"], "layer": layer}
        vllm_config.additional_config = {
            **vllm_config.additional_config,
            "mmspec": {**options, "fastv": fastv},
        }


def require_prunable(vllm_config: Any) -> None:
    """Raises MmspecError when an engine with `fastv` in its configuration cannot prune."""
    settings = engine_settings(getattr(vllm_config, "additional_config", None))
    if settings is None:
        return
    _require_family(vllm_config.model_config)
    _require_layer(settings, vllm_config.model_config.hf_config, vllm_config.model_config.hf_text_config)
    for feature, mend in _clashes(vllm_config):
        raise MmspecError(f"fastv: does not go together with {feature}; {mend}, or take fastv out")


def _require_family(model: Any) -> None:
    if not set(model.architectures) & set(FAMILIES):
        raise MmspecError(
            f"fastv: {', '.join(model.architectures)} is not a family that can be pruned; "
            f"those are {', '.join(FAMILIES.values())}"
        )


def _require_layer(settings: FastVSettings, config: Any, text: Any) -> None:
    layers = text.num_hidden_layers
    if settings.layer >= layers:
        raise MmspecError(
            f"fastv.layer: {settings.layer} leaves nothing to prune in a model of {layers} layers; "
            f"give at most {layers - 1}"
        )
    written = _written_layers(config)
    if settings.layer < written:
        raise MmspecError(
            f"fastv.layer: {settings.layer} is in front of DeepStack, which writes visual features into the first "
            f"{written} layers; give at least {written}"
        )
    if getattr(text, "sliding_window", None) and getattr(text, "use_sliding_window", True):
        raise MmspecError(
            "fastv: this model's sliding window would slide over dropped tokens; take fastv out"
        )


def _written_layers(config: Any) -> int:
    """How many of the first layers DeepStack writes visual features into."""
    vision = getattr(config, "vision_config", None)
    return len(getattr(vision, "deepstack_visual_indexes", None) or [])


def _clashes(vllm_config: Any) -> Iterator[tuple[str, str]]:
    """Features that pruning would break or that would break pruning, each with what to do about it."""
    import vllm.envs as envs
    from vllm.config import CompilationMode

    parallel = vllm_config.parallel_config
    if parallel.pipeline_parallel_size > 1:
        yield "pipeline parallelism", "give --pipeline-parallel-size 1"
    if max(parallel.decode_context_parallel_size, parallel.prefill_context_parallel_size) > 1:
        yield "context parallelism", "give context parallel sizes of 1"
    if parallel.use_ubatching:
        yield "microbatches", "leave out --enable-dbo and --ubatch-size"
    if vllm_config.lora_config is not None:
        yield "LoRA adapters", "leave out --enable-lora"
    if vllm_config.kv_transfer_config is not None:
        yield "a KV connector", "leave out --kv-transfer-config"
    if vllm_config.cache_config.kv_sharing_fast_prefill:
        yield "fast prefill by shared KV", "leave out --kv-sharing-fast-prefill"
    if vllm_config.model_config.runner_type != "generate":
        yield f"the runner {vllm_config.model_config.runner_type}", "give --runner generate"
    if vllm_config.compilation_config.mode == CompilationMode.STOCK_TORCH_COMPILE:
        yield "stock torch.compile", "give compilation mode 0 or 3"
    if _graphs_write_kv(vllm_config.compilation_config):
        yield (
            "CUDA graphs that hold the writes to the KV cache",
            "leave out use_inductor_graph_partition and splitting_ops",
        )
    if getattr(getattr(vllm_config.model_config, "multimodal_config", None), "video_pruning_rate", None):
        yield "vLLM's own video pruning", "leave out --video-pruning-rate"
    drafting = getattr(vllm_config, "speculative_config", None)
    if drafting is not None and drafting.method == "ngram_gpu":
        # It takes drafts back after the step was scheduled, so that the batch is not what the scheduler said.
        yield "the draft ngram_gpu", "draft with ngram"
    if envs.VLLM_USE_BREAKABLE_CUDAGRAPH:
        yield "breakable CUDA graphs", "unset VLLM_USE_BREAKABLE_CUDAGRAPH"


def _graphs_write_kv(compilation: Any) -> bool:
    """Whether graphs between the attention calls have the slots in them that were there when they were captured."""
    from vllm.config import CUDAGraphMode

    return (
        compilation.cudagraph_mode not in (None, CUDAGraphMode.NONE)
        and compilation.splitting_ops_contain_attention()
        and not compilation.splitting_ops_contain_kv_cache_update()
    )
