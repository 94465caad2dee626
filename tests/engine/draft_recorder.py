"""Watches the draft of an engine in this process (V1 runner): what each of its passes was given."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Pass:
    """One forward pass of the draft. Rows that only fill up a batch are left out."""

    tokens: list[int]
    positions: list[Any]  # one index a token, or with M-RoPE three rows of them
    slots: list[int]
    seq_lens: list[int]


@dataclass
class Proposal:
    """One call for drafts; the lists but the last have an entry for each request of the batch."""

    requests: list[str]
    computed: list[int]  # tokens of the sequence before this step
    scheduled: list[int]
    rejected: list[int]  # of those scheduled
    blocks: list[list[int]]
    ids: list[list[int]]  # the target's positions, or its M-RoPE ids by row, of all scheduled tokens
    passes: list[Pass] = field(default_factory=list)

    @property
    def rows(self) -> range:
        return range(len(self.requests))


class DraftRecorder:
    """Collects a `Proposal` for every step in which the engine drafts."""

    def __init__(self, llm: Any) -> None:
        core = llm.llm_engine.engine_core.engine_core
        self._runner = core.model_executor.driver_worker.worker.model_runner
        self.block_size: int = self._runner.drafter.block_size
        self.proposals: list[Proposal] = []
        self._propose = self._runner.propose_draft_token_ids
        self._runner.propose_draft_token_ids = self._on_proposal
        self._runner.drafter.model.register_forward_pre_hook(self._on_pass, with_kwargs=True)

    def mrope_delta(self, request: str) -> int:
        """How much larger a text token's M-RoPE id is than its index, behind the prompt."""
        delta: int = self._runner.requests[request].mrope_position_delta
        return delta

    def _on_proposal(self, scheduler_output: Any, sampled: Any, *arguments: Any) -> Any:
        runner, batch = self._runner, self._runner.input_batch
        scheduled = [scheduler_output.num_scheduled_tokens[name] for name in batch.req_ids]
        table = batch.block_table[0].get_cpu_tensor()
        self.proposals.append(
            Proposal(
                requests=list(batch.req_ids),
                computed=runner.num_computed_tokens[: batch.num_reqs].tolist(),
                scheduled=scheduled,
                rejected=_rejected(batch.req_ids, scheduler_output.scheduled_spec_decode_tokens, sampled),
                blocks=table[: batch.num_reqs].tolist(),
                ids=runner._get_positions(sum(scheduled)).tolist(),
            )
        )
        return self._propose(scheduler_output, sampled, *arguments)

    def _on_pass(self, model: Any, arguments: Any, keywords: dict[str, Any]) -> None:
        from vllm.forward_context import get_forward_context

        context = get_forward_context()
        if not self.proposals or not context.attn_metadata:
            return  # a dummy run
        (layer, metadata), *_ = context.attn_metadata.items()
        tokens = int(metadata.query_start_loc[-1])
        self.proposals[-1].passes.append(
            Pass(
                tokens=self._runner.drafter.input_ids[:tokens].tolist(),
                positions=keywords["positions"][..., :tokens].tolist(),
                slots=context.slot_mapping[layer][:tokens].tolist(),
                seq_lens=metadata.seq_lens.tolist(),
            )
        )


def _rejected(names: list[str], drafts: dict[str, list[int]], sampled: Any) -> list[int]:
    rows = sampled if isinstance(sampled, list) else sampled.tolist()
    kept = [sum(token != -1 for token in row) for row in rows]
    return [
        len(drafts[name]) + 1 - count if drafts.get(name) else 0
        for name, count in zip(names, kept, strict=True)
    ]
