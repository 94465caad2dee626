"""The loop of capture: conversations in batches through the engine into the store, until all are done or it is full."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

from mmspec.errors import MmspecError
from mmspec.heads.capture.answering import AnsweringEngine, answer_all
from mmspec.heads.capture.collecting import Collector, ExtractingEngine
from mmspec.heads.capture.conversations import Conversation, Skipped, read_conversations
from mmspec.heads.capture.manifest import Counts, Manifest
from mmspec.heads.capture.settings import CaptureSettings
from mmspec.heads.capture.store import CaptureStore
from mmspec.heads.capture.target import CaptureTarget
from mmspec.heads.capture.versions import versions


class Engine(AnsweringEngine, ExtractingEngine, Protocol):
    """What `CaptureEngine` offers."""


MakeEngine = Callable[[CaptureTarget, Path], AbstractContextManager[Engine]]
"""Starts an engine for a target; its files go into the folder."""

Report = Callable[[int, int, Counts], None]
"""Is told lines passed, lines in all, and what is published."""


@dataclass(frozen=True)
class Summary:
    """How a capture ended; `full` when lines are left because of the bound on bytes."""

    counts: Counts
    bytes: int
    lines: int
    full: bool
    skipped: list[Skipped] = field(default_factory=list)
    mended: list[str] = field(default_factory=list)


def capture(
    settings: CaptureSettings,
    target: CaptureTarget,
    make_engine: MakeEngine,
    report: Report = lambda passed, lines, counts: None,
    decode: Callable[[bytes], Any] | None = None,
) -> Summary:
    """Captures every line of the prompts that the folder does not hold yet.

    Args:
        decode: turns bytes into a PIL picture; vLLM's own intake by default.

    Raises:
        MmspecError: nothing usable in the prompts, or a folder that belongs to something else.
    """
    lines = require_lines(settings.prompts)
    sizes = {"shard_bytes": settings.shard_bytes, "max_bytes": settings.max_bytes}
    with CaptureStore(settings.folder, new_manifest(settings, target), **sizes) as store:
        run = _Run(settings, target, store, lambda passed: report(passed, lines, store.counts), decode)
        try:
            full = run.capture_rest(make_engine)
        except (Exception, KeyboardInterrupt):
            store.publish()  # so that the next run goes on from here
            raise
        store.finish(complete=not full)
        if not store.counts.samples:
            raise MmspecError(
                f"prompts {settings.prompts}: nothing usable in {lines} lines; {store.skipped[0]}"
            )
        return Summary(store.counts, store.bytes, lines, full, store.skipped, store.mended)


def new_manifest(settings: CaptureSettings, target: CaptureTarget) -> Manifest:
    """The manifest of a dataset that nothing is in yet."""
    mmspec, vllm = versions()
    return Manifest(
        model=target.model,
        fingerprint=target.fingerprint,
        engine_dtype=target.dtype,
        dtype=settings.dtype or target.dtype,
        num_layers=target.num_layers,
        aux_layer_ids=list(target.aux_layer_ids),
        hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
        mrope=target.mrope,
        temperature=settings.temperature,
        top_p=settings.top_p,
        max_tokens=settings.max_tokens,
        seed=settings.seed,
        all_turns=settings.all_turns,
        mmspec_version=mmspec,
        vllm_version=vllm,
    )


class _Run:
    """One pass over the prompts."""

    def __init__(
        self,
        settings: CaptureSettings,
        target: CaptureTarget,
        store: CaptureStore,
        report: Callable[[int], None],
        decode: Callable[[bytes], Any] | None,
    ) -> None:
        self._settings, self._target, self._store = settings, target, store
        self._report, self._decode = report, decode
        self._passed = 0

    def capture_rest(self, make_engine: MakeEngine) -> bool:
        """Whether it stopped before the end because the store is full."""
        waiting = self._waiting()
        first = next(waiting, None)
        if first is None:
            return False  # and no engine has to start
        waiting = chain([first], waiting)
        settings, dtype = self._settings, self._settings.dtype or self._target.dtype
        with make_engine(self._target, self._store.spool) as engine:
            collector = Collector(
                engine, self._store, self._target, dtype, settings.shard_bytes, self._store.skip
            )
            while batch := list(islice(waiting, settings.batch_size)):
                if not collector.collect(answer_all(engine, batch, settings, self._store.skip, self._decode)):
                    return True
                self._passed += len(batch)
                self._report(self._passed)
        return False

    def _waiting(self) -> Iterator[Conversation]:
        done = self._store.done
        for one in read_conversations(self._settings.prompts):
            if isinstance(one, Skipped):
                self._store.skip(one)
            elif one.key not in done:
                yield one
                continue
            self._passed += 1


def require_lines(path: Path) -> int:
    """The number of lines, after a look at all of them: the engine takes long to start."""
    lines, first, usable = 0, None, False
    for one in read_conversations(path):
        lines += 1
        usable = usable or isinstance(one, Conversation)
        first = first or (one if isinstance(one, Skipped) else None)
    if not lines:
        raise MmspecError(f"prompts {path}: the file is empty; give a JSONL file with a conversation a line")
    if not usable:
        raise MmspecError(f"prompts {path}: nothing usable in {lines} lines; {first}")
    return lines
