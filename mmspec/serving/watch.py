"""Follows an answer through vLLM's server for the statistics that its request asked for."""

import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from mmspec.encoders.fastv.prompt import TELL
from mmspec.encoders.fastv.settings import engine_settings
from mmspec.encoders.intake.notes import noted
from mmspec.errors import MmspecError
from mmspec.serving.asked import Asked, asked_statistics
from mmspec.serving.tokens import token_origins
from mmspec.serving.trace import Step
from mmspec.stats import REPORT_KEY, STEPS_KEY, request_stats

_log = logging.getLogger("vllm.plugins.mmspec")


class Watch:
    """One prompt's generation.

    Attributes:
        result: the statistics as they go into the response; None until the answer is complete.
    """

    def __init__(self, engine: Any, params: Any, asked: Asked) -> None:
        self.result: dict[str, Any] | None = None
        self._engine, self._asked = engine, asked
        self._skip_special = params.skip_special_tokens
        self._intake = noted()
        self._finished: dict[int, Any] = {}  # complete answers by their index
        self._token_ids: list[int] = []
        self._report: dict[str, Any] | None = None
        self._metrics: Any = None
        self._name: str | None = None
        if asked.kept and engine_settings(engine.vllm_config.additional_config) is not None:
            self._name = uuid.uuid4().hex
            params.extra_args = {**params.extra_args, TELL: self._name}

    async def follow(self, outputs: AsyncGenerator[Any, None], *, delta: bool) -> AsyncIterator[Any]:
        """The outputs unchanged, without the scheduler's report; `result` is there when they end.

        Args:
            outputs: vLLM's `RequestOutput`s.
            delta: each holds only what is new.
        """
        async with aclosing(outputs):
            async for output in outputs:
                self._take(output, delta=delta)
                self._metrics = output.metrics
                yield output
        self.result = await self._conclude()

    def _take(self, output: Any, *, delta: bool) -> None:
        params = dict(output.ec_transfer_params or {})
        self._report = params.pop(REPORT_KEY, self._report)
        output.ec_transfer_params = params or None
        for answer in output.outputs:
            if self._asked.tokens:
                self._token_ids = self._token_ids if delta else []
                self._token_ids += answer.token_ids
            if answer.finish_reason is not None:
                self._finished[answer.index] = answer

    async def _conclude(self) -> dict[str, Any]:
        whole = _Whole(list(self._finished.values()), self._metrics, {REPORT_KEY: self._report})
        result = request_stats(whole, self._intake).to_dict()
        if self._asked.tokens:
            result["tokens"] = self._tokens()
        if self._asked.kept:
            result["kept"] = await self._kept()
        return result

    def _tokens(self) -> list[dict[str, Any]]:
        tokenizer = self._engine.renderer.tokenizer
        steps = [Step.from_record(record) for record in (self._report or {}).get(STEPS_KEY, ())]

        def decode(token_ids: list[int]) -> str:
            text: str = tokenizer.decode(token_ids, skip_special_tokens=self._skip_special)
            return text

        return token_origins(steps, self._token_ids, decode)

    async def _kept(self) -> Any:
        """What the workers noted; None where nothing was pruned, or the worker that did cannot be asked."""
        if self._name is None:
            return None
        try:
            told = await self._engine.collective_rpc("mmspec_kept", args=(self._name,))
        except Exception as error:  # the answer is there, and goes out without this
            _log.warning("mmspec: which visual tokens were kept cannot be told: %s", error)
            return None
        return next((one for one in told if one is not None), None)


@dataclass(frozen=True)
class _Whole:
    """The parts of a `RequestOutput` that statistics are read from, for all of a request's answers."""

    outputs: list[Any]
    metrics: Any
    ec_transfer_params: dict[str, Any]


_watches: ContextVar[list[Watch] | None] = ContextVar("mmspec_watches", default=None)


@contextmanager
def watching() -> Iterator[list[Watch]]:
    """Fills the list that it gives with the generations that are begun inside and want statistics, in order."""
    watches: list[Watch] = []
    token = _watches.set(watches)
    try:
        yield watches
    finally:
        _watches.reset(token)


def watch(engine: Any, params: Any) -> Watch | None:
    """A watch over a generation that is about to begin; None where nobody wants statistics of it.

    A request that asks in a wrong way is refused later, where vLLM looks at its parameters.
    """
    watches = _watches.get()
    if watches is None:
        return None
    try:
        asked = asked_statistics(getattr(params, "extra_args", None))
    except MmspecError:
        return None
    if asked is None:
        return None
    watches.append(Watch(engine, params, asked))
    return watches[-1]
