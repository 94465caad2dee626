"""The platform's attention backend, with metadata for the layers that do not see dropped tokens."""

from collections.abc import Callable
from typing import Any

from mmspec.encoders.fastv.book import Step
from mmspec.encoders.fastv.metadata import without_dropped
from mmspec.errors import MmspecError

# Backends whose builders take all they need from the common metadata, and whose metadata was looked at field by field.
SUPPORTED = ("CPU_ATTN", "FLASH_ATTN", "FLASHINFER", "TRITON_ATTN")

CurrentStep = Callable[[], Step | None]


def pruned_backend(stock: Any, current: CurrentStep) -> Any:
    """A subclass of `stock` that differs in nothing but its metadata builder; make one for each engine.

    Layers with another backend class get a metadata builder of their own from vLLM.

    Raises:
        MmspecError: a backend whose metadata cannot be made for shorter sequences.
    """
    from vllm.v1.attention.backend import subclass_attention_backend

    name = stock.get_name()
    if name not in SUPPORTED:
        raise MmspecError(
            f"fastv: the attention backend {name} is not supported; choose one of {', '.join(SUPPORTED)} with "
            "--attention-backend, or take fastv out of the configuration"
        )
    return subclass_attention_backend("FastV", stock, _pruned_builder(stock.get_builder_cls(), current))


def _pruned_builder(stock: Any, current: CurrentStep) -> Any:
    from vllm.v1.attention.backend import AttentionCGSupport

    def build(self: Any, common_prefix_len: int, common_attn_metadata: Any, *args: Any, **kwargs: Any) -> Any:
        step = current()
        if step is not None and step.rows is not None:
            block_size = self.kv_cache_spec.block_size
            common_attn_metadata = without_dropped(common_attn_metadata, step.rows, block_size)
            step.slots |= dict.fromkeys(self.layer_names, common_attn_metadata.slot_mapping)
        return stock.build(self, common_prefix_len, common_attn_metadata, *args, **kwargs)

    def no_full_graphs(cls: Any, vllm_config: Any, kv_cache_spec: Any) -> Any:
        # A full graph would replay the slots and lengths of the layers that see everything.
        return AttentionCGSupport.NEVER

    overrides = {
        "build": build,
        "get_cudagraph_support": classmethod(no_full_graphs),
        # vLLM would hand on the metadata of another group, with slots that are not compacted.
        "supports_update_block_table": False,
    }
    return type(f"FastV{stock.__name__}", (stock,), overrides)
