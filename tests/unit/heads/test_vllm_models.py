"""What is read from vLLM's source is what vLLM itself says of its classes."""

import pytest

from mmspec.heads.check.vllm_models import has_eagle3

ARCHITECTURES = [
    "Qwen2_5_VLForConditionalGeneration",
    "Qwen3VLForConditionalGeneration",
    "Qwen3VLMoeForConditionalGeneration",
    "Qwen2VLForConditionalGeneration",
    "LlavaForConditionalGeneration",
    "LlavaNextForConditionalGeneration",
    "LlavaOnevisionForConditionalGeneration",
    "Mistral3ForConditionalGeneration",
    "Gemma3ForConditionalGeneration",
    "InternVLChatModel",
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "GPT2LMHeadModel",
]


@pytest.mark.slow
def test_the_source_says_what_the_classes_say() -> None:
    from vllm.model_executor.models import ModelRegistry
    from vllm.model_executor.models.interfaces import supports_eagle3

    said = {name: has_eagle3(name) for name in ARCHITECTURES}

    expected = {}
    for name in ARCHITECTURES:
        loaded = ModelRegistry.models[name].load_model_cls()
        expected[name] = supports_eagle3(loaded)
    assert said == expected
    assert set(expected.values()) == {True, False}


def test_an_architecture_that_vllm_does_not_list_is_unknown() -> None:
    assert has_eagle3("NobodyForCausalLM") is None
