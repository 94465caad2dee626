"""EAGLE-3 heads that get something of the target's pictures."""

from typing import Any, ClassVar, Literal

import torch
from vllm.config import VllmConfig
from vllm.forward_context import get_forward_context
from vllm.model_executor.models.llama_eagle3 import Eagle3LlamaForCausalLM
from vllm.model_executor.models.utils import _merge_multimodal_embeddings
from vllm.multimodal.inputs import NestedTensors

from mmspec.heads.config import VISION_WEIGHTS
from mmspec.heads.serving.pictures import BatchRows, PictureTable
from mmspec.heads.vision import ImageSummary

_PICTURES = 4096  # whose summaries are kept on the device


class _TakesFeatures(Eagle3LlamaForCausalLM):
    """vLLM's head; both runners hand the target's features to drafts that say that they take them."""

    supports_multimodal_embeddings: ClassVar[Literal[True]] = True

    def _own_width(self, features: NestedTensors) -> list[torch.Tensor]:
        """Qwen3-VL appends the features of its DeepStack layers, which the draft has no use for."""
        return [item[..., : self.config.hidden_size] for item in features]


class SeeingEagle3LlamaForCausalLM(_TakesFeatures):
    """Visual tokens have their features for embeddings, as in the target."""

    def embed_input_ids(
        self,
        input_ids: torch.Tensor,
        multimodal_embeddings: NestedTensors | None = None,
        is_multimodal: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Embeddings [tokens, hidden].

        Args:
            multimodal_embeddings: one tensor an item [visual tokens, hidden or more].
            is_multimodal: which tokens are visual, bool [tokens].
        """
        if multimodal_embeddings is None or is_multimodal is None or not len(multimodal_embeddings):
            return self.model.embed_input_ids(input_ids)
        # Placeholder ids may lie outside the vocabulary.
        visible = is_multimodal.to(input_ids.device, non_blocking=True)
        embeddings = self.model.embed_input_ids(input_ids.masked_fill(visible, 0))
        return _merge_multimodal_embeddings(embeddings, self._own_width(multimodal_embeddings), is_multimodal)


class SummarisingEagle3LlamaForCausalLM(_TakesFeatures):
    """Text behind a picture has a learned summary of it added to its embedding."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self._cache = vllm_config.cache_config
        self.vision = ImageSummary(self.config.hidden_size, self.config.mmspec_summary_size)
        self._table: PictureTable | None = None
        self._features: torch.Tensor | None = None
        self._visual: torch.Tensor | None = None

    def embed_input_ids(
        self,
        input_ids: torch.Tensor,
        multimodal_embeddings: NestedTensors | None = None,
        is_multimodal: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Embeddings of the tokens and placeholders; the features are for the pass that follows."""
        self._features = self._visual = None
        if multimodal_embeddings is not None and is_multimodal is not None and len(multimodal_embeddings):
            self._features = torch.cat(self._own_width(multimodal_embeddings))
            self._visual = is_multimodal.to(input_ids.device, non_blocking=True)
        return self.model.embed_input_ids(input_ids)

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        hidden_states: torch.Tensor,
        inputs_embeds: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if inputs_embeds is None:
            inputs_embeds = self.model.embed_input_ids(input_ids)
        metadata = self._metadata()
        if metadata is not None:
            # In place: graphs read from the runner's own buffer.
            inputs_embeds += self._added(metadata, positions, inputs_embeds)
        return super().forward(input_ids, positions, hidden_states, inputs_embeds)

    def load_weights(self, weights: Any) -> None:
        vision: dict[str, torch.Tensor] = {}

        def others() -> Any:
            for name, weight in weights:
                if name.startswith(VISION_WEIGHTS):
                    vision[name.removeprefix(VISION_WEIGHTS)] = weight
                else:
                    yield name, weight

        super().load_weights(others())
        self.vision.load_state_dict(vision)

    def _metadata(self) -> Any:
        """The draft layer's attention metadata; None in runs that only measure memory."""
        metadata = get_forward_context().attn_metadata
        if isinstance(metadata, dict):
            metadata = metadata.get(self.model.layers[0].self_attn.attn.layer_name)
        return metadata

    def _added(self, metadata: Any, positions: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        rows = embeddings.shape[0]
        visual = torch.zeros(rows, dtype=torch.bool, device=embeddings.device)
        if self._visual is not None:
            visual[: len(self._visual)] = self._visual
        if self._table is None:
            self._table = self._new_table(embeddings)
        batch = BatchRows(positions, metadata.query_start_loc, metadata.block_table, visual)
        return self._table.added(self.vision, batch, self._features, embeddings.dtype)

    def _new_table(self, embeddings: torch.Tensor) -> PictureTable:
        blocks = self._cache.num_gpu_blocks
        assert blocks is not None  # set before the first pass with metadata
        return PictureTable(
            blocks, self._cache.block_size, _PICTURES, embeddings.shape[-1], embeddings.device
        )
