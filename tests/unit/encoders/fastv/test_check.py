"""What an engine cannot prune is refused before weights load, with a line that names the mend."""

from types import SimpleNamespace
from typing import Any

import pytest

from mmspec.encoders.fastv.check import FAMILIES, require_prunable, settle_layer
from mmspec.errors import MmspecError


def engine(
    fastv: dict[str, Any] | None,
    *,
    architecture: str = "Qwen2_5_VLForConditionalGeneration",
    layers: int = 8,
    deepstack: list[int] | None = None,
    **changes: Any,
) -> SimpleNamespace:
    """The fields of vLLM's configuration that are read."""
    from vllm.config import CompilationMode, CUDAGraphMode

    compilation = {"mode": CompilationMode.NONE, "cudagraph_mode": CUDAGraphMode.NONE}
    vision = SimpleNamespace(deepstack_visual_indexes=deepstack)
    model = SimpleNamespace(
        architectures=[architecture],
        hf_config=SimpleNamespace(vision_config=vision),
        hf_text_config=SimpleNamespace(num_hidden_layers=layers, **changes.pop("text", {})),
        runner_type=changes.pop("runner_type", "generate"),
        multimodal_config=SimpleNamespace(video_pruning_rate=changes.pop("video_pruning_rate", None)),
    )
    parallel = {
        "pipeline_parallel_size": 1,
        "decode_context_parallel_size": 1,
        "prefill_context_parallel_size": 1,
        "use_ubatching": False,
    }
    parallel |= {name: changes.pop(name) for name in list(changes) if name in parallel}
    return SimpleNamespace(
        additional_config={"mmspec": {} if fastv is None else {"fastv": fastv}},
        model_config=model,
        parallel_config=SimpleNamespace(**parallel),
        lora_config=changes.get("lora_config"),
        speculative_config=changes.get("speculative_config"),
        kv_transfer_config=changes.get("kv_transfer_config"),
        cache_config=SimpleNamespace(kv_sharing_fast_prefill=changes.get("fast_prefill", False)),
        compilation_config=changes.get("compilation_config", SimpleNamespace(**compilation)),
    )


@pytest.mark.parametrize("architecture", FAMILIES)
def test_the_families_can_be_pruned(architecture: str) -> None:
    require_prunable(engine({"layer": 7}, architecture=architecture))
    unused = {"sliding_window": 4096, "use_sliding_window": False}
    require_prunable(engine({"layer": 7}, architecture=architecture, text=unused))
    require_prunable(engine({"layer": 3}, architecture=architecture, deepstack=[1, 2, 3]))


def test_an_engine_that_does_not_prune_is_not_looked_at() -> None:
    require_prunable(engine(None, architecture="LlamaForCausalLM", lora_config=object()))
    require_prunable(SimpleNamespace())


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({}, False),
        ({"use_inductor_graph_partition": True}, True),
        ({"splitting_ops": "attention"}, True),
        ({"splitting_ops": "attention", "cudagraph_mode": "NONE"}, False),
    ],
    ids=["default", "partition", "own splits", "no graphs"],
)
def test_graphs_must_not_hold_the_writes_to_the_kv_cache(options: dict[str, Any], refused: bool) -> None:
    """They would replay the slots of the time when they were captured, which for these layers are others each step."""
    from vllm.config import CompilationConfig, CompilationMode

    if options.get("splitting_ops") == "attention":
        options = options | {"splitting_ops": list(CompilationConfig._attention_ops)}
    compilation = CompilationConfig(
        **{"mode": CompilationMode.VLLM_COMPILE, "cudagraph_mode": "PIECEWISE"} | options
    )
    compilation.set_splitting_ops_for_v1("naive")
    asked = engine({"layer": 2}, compilation_config=compilation)
    if refused:
        with pytest.raises(MmspecError, match="hold the writes to the KV cache; leave out use_inductor"):
            require_prunable(asked)
    else:
        require_prunable(asked)


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (
            {"architecture": "Phi3VForCausalLM"},
            "Phi3VForCausalLM is not a family .* Qwen2.5-VL, Qwen3-VL, LLaVA",
        ),
        ({"layers": 2}, "fastv.layer: 2 leaves nothing to prune in a model of 2 layers; give at most 1"),
        ({"deepstack": [5, 11, 17]}, "in front of DeepStack, .* the first 3 layers; give at least 3"),
        ({"text": {"sliding_window": 4096}}, "sliding window would slide over dropped tokens"),
        ({"pipeline_parallel_size": 2}, "pipeline parallelism; give --pipeline-parallel-size 1"),
        ({"decode_context_parallel_size": 2}, "context parallelism"),
        ({"use_ubatching": True}, "microbatches; leave out --enable-dbo"),
        ({"lora_config": object()}, "LoRA adapters; leave out --enable-lora"),
        ({"kv_transfer_config": object()}, "a KV connector; leave out --kv-transfer-config"),
        ({"fast_prefill": True}, "leave out --kv-sharing-fast-prefill"),
        ({"runner_type": "pooling"}, "the runner pooling; give --runner generate"),
        ({"video_pruning_rate": 0.5}, "vLLM's own video pruning; leave out --video-pruning-rate"),
        (
            {"speculative_config": SimpleNamespace(method="ngram_gpu")},
            "the draft ngram_gpu; draft with ngram",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_be_pruned_is_refused(wrong: dict[str, Any], line: str) -> None:
    with pytest.raises(MmspecError, match=line) as caught:
        require_prunable(engine({"layer": 2}, **wrong))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fastv", "deepstack", "layer"),
    [
        ({"keep": 0.5}, [5, 11, 17], 3),
        ({"keep": 0.5}, [5], 2),
        ({"keep": 0.5}, None, 2),
        ({"layer": 2}, [5, 11, 17], 2),
        ({"layer": 6}, [5, 11, 17], 6),
    ],
)
def test_without_a_layer_the_first_behind_deepstack_is_taken(
    fastv: dict[str, Any], deepstack: list[int] | None, layer: int
) -> None:
    configured = engine(fastv, deepstack=deepstack)
    given = configured.additional_config

    settle_layer(configured)

    assert configured.additional_config["mmspec"]["fastv"] == fastv | {"layer": layer}
    assert given == {"mmspec": {"fastv": fastv}}  # the user's own mapping stays as it is


def test_an_engine_that_does_not_prune_has_no_layer_to_settle() -> None:
    configured = engine(None, deepstack=[5, 11, 17])

    settle_layer(configured)
    settle_layer(SimpleNamespace())

    assert configured.additional_config == {"mmspec": {}}
