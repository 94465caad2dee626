"""A head's acceptance by kind of prompt and temperature: simulated along the target's answers, and in the engine."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mmspec.bench.positions import acceptance_in_engine
from mmspec.config import DraftConfig
from mmspec.defaults import engine_defaults, keep_thread_count
from mmspec.heads.evaluate import Acceptance, simulate

Messages = list[dict[str, Any]]
Report = Callable[[str], None]


@dataclass(frozen=True)
class HeadScore:
    """One kind of prompt at one temperature; `difference` is the engine's length over the simulated one, minus 1."""

    simulated: Acceptance
    engine: Acceptance

    @property
    def difference(self) -> float:
        return self.engine.mean_acceptance_length / self.simulated.mean_acceptance_length - 1

    def to_dict(self) -> dict[str, Any]:
        return {
            "simulated": self.simulated.to_dict(),
            "engine": self.engine.to_dict(),
            "difference": self.difference,
        }


@dataclass(frozen=True)
class _Asked:
    """What holds for every temperature."""

    head: str
    target: str
    kinds: Mapping[str, Sequence[Messages]]
    tokens: int
    max_tokens: int
    engine: dict[str, Any]


def evaluate_head(
    head: str,
    target: str,
    kinds: Mapping[str, Sequence[Messages]],
    *,
    temperatures: Sequence[float],
    tokens: int,
    max_tokens: int,
    report: Report = lambda line: None,
    **vllm_kwargs: Any,
) -> dict[str, dict[str, HeadScore]]:
    """Asks every conversation twice at every temperature: to capture the target's answers, and with drafting.

    Args:
        head: its folder.
        target: the target's checkpoint folder.
        kinds: conversations by kind of prompt.
        tokens: drafted a step.

    Returns:
        By kind and then by temperature.
    """
    engine = {"dtype": "float32", "max_num_seqs": 8, **vllm_kwargs}
    asked = _Asked(head, target, kinds, tokens, max_tokens, engine)
    found: dict[str, dict[str, HeadScore]] = {kind: {} for kind in kinds}
    for temperature in temperatures:
        report(f"temperature {temperature}: the target's own answers")
        simulated = _simulated(asked, temperature)
        report(f"temperature {temperature}: with drafting")
        measured = _measured(asked, temperature)
        for kind in kinds:
            found[kind][str(temperature)] = HeadScore(simulated[kind], measured[kind])
    return found


def _simulated(asked: _Asked, temperature: float) -> dict[str, Acceptance]:
    from mmspec.heads.capture import CapturedDataset, CaptureSettings, capture, describe_target
    from mmspec.heads.capture.start import running_engine
    from mmspec.patches import IN_PROCESS, apply_missing

    apply_missing(IN_PROCESS)
    keep_thread_count()
    layers = json.loads((Path(asked.head) / "config.json").read_text())["eagle_aux_hidden_state_layer_ids"]
    with TemporaryDirectory() as folder:
        prompts = Path(folder) / "prompts.jsonl"
        settings = CaptureSettings(
            prompts, Path(folder) / "captured", temperature=temperature, max_tokens=asked.max_tokens
        )
        kind_of = _write(prompts, asked.kinds)
        arguments = engine_defaults(asked.target, asked.engine) | asked.engine
        described = describe_target(asked.target, layers, arguments["dtype"])
        capture(settings, described, partial(running_engine, **arguments))
        data = CapturedDataset(settings.folder)
        samples = ((kind_of[data.record(i).key], data[i]) for i in range(len(data)))
        return simulate(Path(asked.head), Path(asked.target), samples, asked.tokens)


def _write(path: Path, kinds: Mapping[str, Sequence[Messages]]) -> dict[str, str]:
    """Writes the conversations; returns the kind of each by its key."""
    from mmspec.heads.capture.conversations import Conversation, read_conversations

    order = [(kind, messages) for kind, conversations in kinds.items() for messages in conversations]
    path.write_text("".join(json.dumps({"messages": messages}) + "\n" for _, messages in order))
    read: Iterator[Any] = read_conversations(path)
    return {
        one.key: kind for (kind, _), one in zip(order, read, strict=True) if isinstance(one, Conversation)
    }


def _measured(asked: _Asked, temperature: float) -> dict[str, Acceptance]:
    from mmspec.llm import LLM

    draft = DraftConfig(method="eagle3", model=asked.head, num_speculative_tokens=asked.tokens)
    llm = LLM(asked.target, draft=draft, **asked.engine)
    found = {
        kind: acceptance_in_engine(llm, conversations, asked.max_tokens, temperature)
        for kind, conversations in asked.kinds.items()
    }
    llm.close()
    return found
