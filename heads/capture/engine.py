"""The serving engine as capture uses it: answers from chat messages, then states of whole sequences."""

import pickle
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from mmspec.errors import MmspecError
from mmspec.heads.capture.sequences import Answer, Prompt, States
from mmspec.heads.capture.spool import FEATURES, SAVE, STATES, TOKENS, feature_path
from mmspec.heads.capture.target import CaptureTarget

_PATIENCE = 120.0  # seconds without a file that the engine said it would write
# Nearer to the end of the context a draft does not fit, and vLLM leaves out the states of the whole step.
_ROOM = 4
_SMALL = 64  # elements: grids of pictures are, pixels are not


class CaptureEngine:
    """Drives a `vllm.LLM` that was made with `engine_arguments`."""

    def __init__(self, llm: Any, target: CaptureTarget, spool: Path) -> None:
        self._llm, self._target, self._spool = llm, target, spool
        self._requests = 0

    @property
    def longest(self) -> int:
        """Most tokens that a whole sequence may have."""
        return int(self._llm.model_config.max_model_len) - _ROOM

    def render(self, messages: list[dict[str, Any]]) -> Prompt:
        """Applies the chat template and the target's processor, as serving does.

        Raises:
            Exception: whatever vLLM says of messages that this target cannot take.
        """
        return Prompt(dict(self._llm._preprocess_chat_one(messages)))

    def answer(
        self,
        prompts: Sequence[Prompt],
        *,
        temperature: float,
        top_p: float,
        most: Sequence[int],
        seeds: Sequence[int],
    ) -> list[Answer]:
        """The target's answers, in one batch; each prompt has its own length limit and seed."""
        from vllm import SamplingParams

        sampling = [
            SamplingParams(temperature=temperature, top_p=top_p, max_tokens=max_tokens, seed=seed)
            for max_tokens, seed in zip(most, seeds, strict=True)
        ]
        completions = [output.outputs[0] for output in self._run(prompts, sampling)]
        return [Answer(list(completion.token_ids), completion.text) for completion in completions]

    def extract(self, sequences: Sequence[Prompt]) -> Iterator[States]:
        """The states of each sequence, one after the other, so that only one is in memory."""
        from vllm import SamplingParams

        asked = SamplingParams(max_tokens=1, temperature=0, extra_args={"kv_transfer_params": {SAVE: True}})
        positions = self._mrope_positions(sequences)
        outputs = self._run(sequences, [asked] * len(sequences))
        for sequence, mrope, output in zip(sequences, positions, outputs, strict=True):
            path = Path(output.kv_transfer_params["hidden_states_path"])
            self._wait_for(path)
            saved = load_file(path)
            path.unlink()
            if saved[TOKENS].tolist() != sequence.token_ids:
                raise MmspecError(
                    f"{path}: the engine saved the states of another sequence; run the capture again"
                )
            yield _split(saved[STATES], mrope)

    def features(self, key: str) -> torch.Tensor:
        """The embeddings that replaced the placeholders of a picture, [visual tokens, hidden].

        Raises:
            MmspecError: the engine has not encoded it since `forget_features`.
        """
        path = feature_path(self._spool, key)
        if not path.exists():
            raise MmspecError(f"the engine handed out no features of picture {key[:12]}…")
        # Behind the embeddings of the input Qwen3-VL has those that go into deeper layers.
        return load_file(path)[FEATURES][:, : self._target.hidden_size].contiguous()

    def forget_features(self, key: str) -> None:
        """Takes the picture out of the spool, into which it comes whenever it is encoded."""
        feature_path(self._spool, key).unlink(missing_ok=True)

    def _run(self, prompts: Sequence[Prompt], sampling: Sequence[Any]) -> list[Any]:
        engine = self._llm.llm_engine
        names = [str(number) for number in range(self._requests, self._requests + len(prompts))]
        self._requests += len(prompts)
        for name, prompt, parameters in zip(names, prompts, sampling, strict=True):
            engine.add_request(name, prompt.engine_input, parameters)
        finished: dict[str, Any] = {}
        while engine.has_unfinished_requests():
            finished |= {output.request_id: output for output in engine.step() if output.finished}
        return [finished[name] for name in names]

    def _wait_for(self, path: Path) -> None:
        """States are written in the step after a request's last one; an engine in this process has to be asked."""
        from vllm.v1.engine.core_client import InprocClient

        engine = self._llm.llm_engine
        deadline = time.monotonic() + _PATIENCE
        while not path.exists():
            if time.monotonic() > deadline:
                raise MmspecError(f"the engine wrote no states to {path}; --verbose shows its log")
            if isinstance(engine.engine_core, InprocClient):
                engine.step()
            time.sleep(0.001)  # copies from a GPU are written by a thread

    def _mrope_positions(self, sequences: Sequence[Prompt]) -> list[Any]:
        if not self._target.mrope:
            return [None] * len(sequences)
        requests = [(sequence.token_ids, _picture_specs(sequence)) for sequence in sequences]
        answers = self._llm.collective_rpc("capture_mrope_positions", args=(pickle.dumps(requests),))
        positions: list[Any] = pickle.loads(answers[0])
        return positions


def _split(saved: torch.Tensor, mrope: Any) -> States:
    return States(
        hidden_states=saved[:, :-1].flatten(1),
        last_hidden=saved[:, -1].contiguous(),
        mrope_positions=None if mrope is None else torch.tensor(mrope),
    )


def _picture_specs(prompt: Prompt) -> list[Any]:
    """vLLM's description of a prompt's pictures without their pixels: grids are all that positions need."""
    from vllm.multimodal.inputs import MultiModalFeatureSpec

    items = prompt.engine_input.get("mm_kwargs", {}).get("image", [])
    return [
        MultiModalFeatureSpec(data=_small_parts(item), modality="image", identifier="", mm_position=place)
        for item, place in zip(items, prompt.places, strict=True)
    ]


def _small_parts(item: Any) -> Any:
    return type(item)(
        {name: part for name, part in item.items() if torch.as_tensor(part.data).numel() <= _SMALL}
    )
