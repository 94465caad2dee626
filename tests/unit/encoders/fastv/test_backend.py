"""The subclass of a backend: vLLM's own builder on shorter sequences, field by field, for each supported backend.

Builders are made without their constructors, which look at the GPU; what `build` reads of them is set here.
"""

import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from mmspec.encoders.fastv.backend import SUPPORTED, pruned_backend
from mmspec.encoders.fastv.book import Step
from mmspec.encoders.fastv.rows import arrange
from mmspec.errors import MmspecError
from tests.unit.encoders.fastv.steps import prompt

BLOCK = 16
# A decode of a pruned request, a pruned prefill that now begins, and an unpruned prefill.
SCHEDULED, COMPUTED = [1, 40, 20], [50, 0, 0]
DROPPED_BEFORE, DROPPED_NOW = 10, 12
QUERIES = [1, 28, 20]
LENGTHS = [41, 28, 20]


@pytest.fixture
def step() -> Step:
    pruned = prompt(40, list(range(5, 29)), keep=0.5)
    assert pruned.dropped == DROPPED_NOW
    names = ["old", "pruned", "whole"]
    step = Step(
        dict(zip(names, SCHEDULED, strict=True)),
        {"pruned": pruned},
        {"old": DROPPED_BEFORE, "pruned": DROPPED_NOW},
    )
    step.rows = arrange(step, names)
    return step


@pytest.fixture
def common() -> Any:
    from vllm.v1.attention.backend import CommonAttentionMetadata

    starts = torch.tensor([0, 1, 41, 61], dtype=torch.int32)
    lengths = torch.tensor([a + b for a, b in zip(SCHEDULED, COMPUTED, strict=True)], dtype=torch.int32)
    return CommonAttentionMetadata(
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=lengths,
        seq_lens_cpu_upper_bound=lengths,
        num_reqs=3,
        num_actual_tokens=61,
        max_query_len=40,
        max_seq_len=51,
        block_table_tensor=torch.arange(12, dtype=torch.int32).reshape(3, 4),
        slot_mapping=torch.arange(61),
        is_prefilling=torch.tensor([False, True, True]),
    )


# Compacted: the decode writes place 40 of blocks 0 to 3, the prefills theirs from the beginning of their own blocks.
SLOTS = [40, *range(4 * BLOCK, 4 * BLOCK + 28), *range(8 * BLOCK, 8 * BLOCK + 20)]


def builder(stock: Any, current: Any, **fields: Any) -> Any:
    """A metadata builder of the subclass of `stock`."""
    backend = pruned_backend(stock, current)
    assert issubclass(backend, stock)
    assert backend.full_cls_name() != stock.full_cls_name()
    assert backend.get_impl_cls() is stock.get_impl_cls()
    made = object.__new__(backend.get_builder_cls())
    spec = SimpleNamespace(block_size=BLOCK)
    vars(made).update(kv_cache_spec=spec, layer_names=["layer"], dcp_world_size=1, **fields)
    return made


def check(metadata: Any, step: Step) -> None:
    """The fields that FlashAttention's, Triton's and the CPU's metadata have in common."""
    assert metadata.num_actual_tokens == sum(QUERIES)
    assert (metadata.max_query_len, metadata.max_seq_len) == (max(QUERIES), max(LENGTHS))
    assert metadata.query_start_loc.tolist() == [0, 1, 29, 49]
    assert metadata.seq_lens.tolist() == LENGTHS
    assert metadata.block_table.tolist() == torch.arange(12).reshape(3, 4).tolist()
    assert metadata.slot_mapping.tolist() == step.slots["layer"].tolist() == SLOTS
    assert metadata.causal is True


def test_flash_attention(common: Any, step: Step) -> None:
    from vllm.v1.attention.backends.flash_attn import FlashAttentionBackend

    fields = {
        "aot_schedule": False,
        "aot_sliding_window": (-1, -1),
        "use_full_cuda_graph": False,
        "max_cudagraph_size": None,
        "mm_prefix_query_ranges_np": None,
        "rswa_window": None,
    }
    check(builder(FlashAttentionBackend, lambda: step, **fields).build(0, common), step)


def test_triton(common: Any, step: Step) -> None:
    from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend

    scratch = torch.empty(0)
    fields = {
        "seq_threshold_3D": 1,
        "num_par_softmax_segments": 16,
        "softmax_segm_output": scratch,
        "softmax_segm_max": scratch,
        "softmax_segm_expsum": scratch,
        "max_seqs_64_segments": 0,
        "rswa_window": None,
    }
    check(builder(TritonAttentionBackend, lambda: step, **fields).build(0, common), step)


def test_flashinfer(common: Any, step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    """On its own kernels: pages and lengths are planned on the host, for decodes and prefills apart."""
    if "flashinfer" not in sys.modules:
        for name in ("flashinfer", "flashinfer.decode", "flashinfer.prefill", "flashinfer.utils"):
            monkeypatch.setitem(sys.modules, name, MagicMock())
        monkeypatch.setattr(sys.modules["flashinfer"], "BatchPrefillWithPagedKVCacheWrapper", MagicMock)
    from vllm.v1.attention.backends import flashinfer

    monkeypatch.delitem(sys.modules, flashinfer.__name__)
    made = builder(flashinfer.FlashInferBackend, lambda: step)
    prefill, decode = MagicMock(), MagicMock()
    planned = MagicMock()
    monkeypatch.setattr(flashinfer, "fast_plan_decode", planned)
    monkeypatch.setattr(flashinfer, "use_trtllm_attention", lambda *args, **kwargs: False)
    monkeypatch.setattr(flashinfer, "PIN_MEMORY", False)
    pages = MagicMock()
    vars(made).update(
        reorder_batch_threshold=1,
        use_xqa=False,
        use_trtllm_gen_varlen_decode=False,
        use_trtllm_decode_attention=False,
        page_size=BLOCK,
        num_qo_heads=2,
        num_kv_heads=1,
        head_dim=32,
        cache_dtype="auto",
        kv_cache_dtype=torch.float32,
        q_data_type_prefill=torch.float32,
        q_data_type_decode=torch.float32,
        attention_config=SimpleNamespace(use_trtllm_attention=False),
        model_config=SimpleNamespace(dtype=torch.float32),
        cache_config=SimpleNamespace(get_resolved_kv_cache_layout=lambda: "layout"),
        has_sinks=False,
        use_dcp=False,
        nvfp4_trtllm=False,
        enable_cuda_graph=False,
        global_hyperparameters=SimpleNamespace(has_same_window_lefts=True, has_same_all_params=True),
        sm_scale=1.0,
        window_left=-1,
        logits_soft_cap=0.0,
        prefill_fixed_split_size=-1,
        decode_fixed_split_size=-1,
        disable_split_kv=False,
        _num_speculative_tokens=0,
        _compute_flashinfer_kv_metadata=pages,
        _get_prefill_wrapper=lambda causal: prefill,
        _get_decode_wrapper=lambda tokens, graph: decode,
        paged_kv_indptr=SimpleNamespace(cpu=torch.arange(5)),
        paged_kv_last_page_len=SimpleNamespace(cpu=torch.arange(4)),
    )

    metadata = made.build(0, common)

    assert (metadata.num_decodes, metadata.num_decode_tokens) == (1, 1)
    assert (metadata.num_prefills, metadata.num_prefill_tokens) == (2, sum(QUERIES[1:]))
    assert metadata.num_actual_tokens == sum(QUERIES)
    assert metadata.slot_mapping.tolist() == step.slots["layer"].tolist() == SLOTS
    blocks, lengths, table, requests, page = pages.call_args.args
    assert blocks.tolist() == [-(-length // BLOCK) for length in LENGTHS]
    assert lengths.tolist() == LENGTHS
    assert (table.shape, requests, page) == ((3, 4), 3, BLOCK)
    assert prefill.plan.call_args.kwargs["qo_indptr"].tolist() == [0, 28, 48]
    assert planned.call_args.args == (decode,)


def test_a_step_without_pruned_requests_builds_what_vllm_builds(common: Any) -> None:
    from vllm.v1.attention.backends.flash_attn import FlashAttentionBackend

    made = builder(FlashAttentionBackend, lambda: None)
    seen = []
    stock = FlashAttentionBackend.get_builder_cls()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stock, "build", lambda self, prefix, metadata: seen.append(metadata))
        made.build(0, common)

    assert seen[0] is common


def test_full_graphs_are_not_used() -> None:
    from vllm.v1.attention.backend import AttentionCGSupport
    from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend

    made = pruned_backend(TritonAttentionBackend, lambda: None).get_builder_cls()

    assert made.get_cudagraph_support(None, None) == AttentionCGSupport.NEVER
    assert not made.supports_update_block_table


def test_another_backend_is_refused_by_name() -> None:
    with pytest.raises(
        MmspecError, match="attention backend FLEX_ATTENTION is not supported; choose one of"
    ) as caught:
        pruned_backend(SimpleNamespace(get_name=lambda: "FLEX_ATTENTION"), lambda: None)
    assert all(name in str(caught.value) for name in SUPPORTED)
