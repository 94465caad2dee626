"""`mmspec.LLM`: a `vllm.LLM` that drafts, and whose outputs carry `.mmspec`. Importing it imports vLLM."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import vllm
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams

from mmspec.config import DraftConfig, EncoderCacheConfig, FastVConfig, IntakeConfig, MmspecConfig
from mmspec.defaults import engine_defaults, keep_thread_count
from mmspec.draft import AUTO, draft_on
from mmspec.encoders.intake.notes import gathered
from mmspec.engine_args import KEY, engine_kwargs
from mmspec.errors import MmspecError
from mmspec.models import POCKET, resolve_model
from mmspec.patches import IN_PROCESS, apply_missing
from mmspec.stats import request_stats

DEFAULT_INTAKE = IntakeConfig()


class LLM(vllm.LLM):
    """A `vllm.LLM` for vision-language models with speculative decoding.

    Every finished output of `generate`, `chat`, `wait_for_completion` and `stream_chat` carries `.mmspec`, a
    `mmspec.stats.RequestStats`.

    Args:
        model: "pocket", a checkpoint folder, or a hub name.
        draft: a method's name, a `DraftConfig`, None for no drafting, or "auto": the head that comes with mmspec
            for this model, otherwise prompt lookup.
        encoder_cache: the vision-feature cache.
        fastv: visual-token pruning.
        intake: picture intake; None leaves pictures to vLLM.
        **vllm_kwargs: any argument of `vllm.LLM`; these win over mmspec's defaults.

    Raises:
        MmspecError: anything that mmspec can tell before weights load.
    """

    def __init__(
        self,
        model: str = POCKET,
        *,
        draft: DraftConfig | str | None = AUTO,
        encoder_cache: EncoderCacheConfig | None = None,
        fastv: FastVConfig | None = None,
        intake: IntakeConfig | None = DEFAULT_INTAKE,
        **vllm_kwargs: Any,
    ) -> None:
        config = MmspecConfig(
            draft=_draft_unless_given(model, draft, vllm_kwargs),
            encoder_cache=encoder_cache,
            fastv=fastv,
            intake=intake,
        )
        self._intake_notes: dict[str, list[str]] = {}  # by request id, until the request's output comes
        arguments = engine_kwargs(config)
        arguments["additional_config"] |= _others_options(vllm_kwargs.pop("additional_config", None))
        # vLLM's class for offline use leaves the times out otherwise.
        arguments["disable_log_stats"] = False
        arguments |= engine_defaults(model, vllm_kwargs)
        apply_missing(IN_PROCESS)
        keep_thread_count()
        super().__init__(model=resolve_model(model), **(arguments | vllm_kwargs))

    def generate(self, *args: Any, **kwargs: Any) -> list[RequestOutput]:
        with self._noting():
            outputs = super().generate(*args, **kwargs)
        return self._with_stats(outputs)

    def chat(self, *args: Any, **kwargs: Any) -> list[RequestOutput]:
        with self._noting():
            outputs = super().chat(*args, **kwargs)
        return self._with_stats(outputs)

    def enqueue(self, *args: Any, **kwargs: Any) -> list[str]:
        with self._noting():
            return super().enqueue(*args, **kwargs)

    def enqueue_chat(self, *args: Any, **kwargs: Any) -> list[str]:
        with self._noting():
            return super().enqueue_chat(*args, **kwargs)

    def wait_for_completion(self, *args: Any, **kwargs: Any) -> list[Any]:
        return self._with_stats(super().wait_for_completion(*args, **kwargs))

    def stream_chat(self, messages: list[Any], sampling_params: SamplingParams) -> Iterator[RequestOutput]:
        """One conversation, answered piece by piece: each output holds only what is new, in whole characters.

        The last output carries `.mmspec`. Closing the iterator early aborts the request.

        Raises:
            MmspecError: prompt and `max_tokens` do not fit the model's context.
        """
        if self.llm_engine.has_unfinished_requests():
            raise MmspecError(
                "stream_chat answers one conversation at a time; finish the other requests first"
            )
        with self._noting():
            prompt = self._preprocess_chat_one(messages)
        self._require_room(len(prompt["prompt_token_ids"]), sampling_params.max_tokens or 1)
        sampling_params = sampling_params.clone()
        sampling_params.output_kind = RequestOutputKind.DELTA
        request_id = self.llm_engine.add_request(str(next(self.request_counter)), prompt, sampling_params)
        finished = False
        try:
            while not finished:
                for output in self.llm_engine.step():
                    finished = output.finished
                    yield self._with_stats([output])[0]
        finally:
            if not finished:
                self.llm_engine.abort_request([request_id], internal=True)

    def close(self) -> None:
        """Ends the engine and gives its memory back, so that another can start in this process.

        Engines that run in this process share its process groups: closing one ends all of them.
        """
        close_engine(self)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Keeps what the intake notes of the requests that are made inside, in the order of their ids."""
        first = self.request_counter.counter
        with gathered() as notes:
            yield
        self._intake_notes |= {str(first + i): lines for i, lines in enumerate(notes)}

    def _with_stats(self, outputs: Sequence[Any]) -> list[Any]:
        for output in outputs:
            if output.finished and isinstance(output, RequestOutput):
                output.mmspec = request_stats(output, self._intake_notes.pop(output.request_id, ()))
        return list(outputs)

    def _require_room(self, prompt_tokens: int, max_tokens: int) -> None:
        context = self.model_config.max_model_len
        if prompt_tokens + max_tokens > context:
            raise MmspecError(
                f"too long: the prompt takes {prompt_tokens} tokens and the answer up to {max_tokens}, but "
                f"the context holds {context}; shorten the prompt, use smaller pictures, or lower max_tokens"
            )


def close_engine(llm: vllm.LLM) -> None:
    """Ends the engine of any `vllm.LLM`, once, and gives its memory back."""
    if not hasattr(llm, "llm_engine"):
        return
    from vllm.distributed import cleanup_dist_env_and_memory

    llm.llm_engine.engine_core.shutdown()
    del llm.llm_engine
    cleanup_dist_env_and_memory()


def _draft_unless_given(
    model: str, draft: DraftConfig | str | None, vllm_kwargs: dict[str, Any]
) -> DraftConfig | None:
    """The drafting configuration, or None where the user configures vLLM's drafting directly."""
    if vllm_kwargs.get("speculative_config") is None:
        return draft_on(model, draft)
    if draft not in (None, AUTO):
        raise MmspecError("draft and speculative_config are both given; give only one of them")
    return None


def _others_options(additional_config: dict[str, Any] | None) -> dict[str, Any]:
    if KEY in (additional_config or {}):
        raise MmspecError(
            "additional_config['mmspec'] is made from LLM's own arguments; give draft=... instead"
        )
    return additional_config or {}
