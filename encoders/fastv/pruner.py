"""FastV in a model that vLLM runs: installed once when it is loaded, at work only in steps that have to do with it."""

import functools
import logging
from typing import TYPE_CHECKING, Any

from torch import Tensor

from mmspec.encoders.fastv.backend import pruned_backend
from mmspec.encoders.fastv.book import Book, Step
from mmspec.encoders.fastv.passage import Passage, Ranks, Recorder
from mmspec.encoders.fastv.prompt import Prompt
from mmspec.encoders.fastv.rows import Rows, arrange
from mmspec.encoders.fastv.scores import CRITERIA
from mmspec.encoders.fastv.settings import FastVSettings, engine_settings
from mmspec.encoders.fastv.telling import Notes

if TYPE_CHECKING:
    from mmspec.encoders.fastv.tail import Tail

ATTRIBUTE = "mmspec_pruner"  # of the model

_log = logging.getLogger("vllm.plugins.mmspec")


class Pruner:
    """A worker's share of pruning: the book, the current step, and the model's forward pass.

    Attributes:
        step: what is being computed, if pruned requests are about.
        record: is told which tokens stay, when somebody wants to know; the device is waited for then.
        notes: which tokens stayed, for requests that want to know.
        tail: the layers behind K as they are compiled apart, in an engine that compiles.
    """

    def __init__(self, settings: FastVSettings, layers: Any) -> None:
        self.step: Step | None = None
        self.record: Recorder | None = None
        self.notes = Notes()
        self.tail: Tail | None = None
        self._settings, self._layers = settings, layers
        self._criterion = CRITERIA[settings.scores]
        self._book = Book(settings)
        self._ranks = _tensor_parallel()

    def begin(self, output: Any) -> None:
        """Takes in what a step schedules (vLLM's `SchedulerOutput`)."""
        self.step = self._book.begin(output)

    def arrange(self, names: Any) -> None:
        """Takes in the order of the requests in the batch; before the attention metadata is built."""
        if self.step is not None:
            self.step.rows = arrange(self.step, names)

    def end(self) -> None:
        self.step = None

    def wrap(self, forward: Any) -> Any:
        """The model's forward pass, which prunes what the step is to prune."""

        @functools.wraps(forward)
        def pruning(*args: Any, **kwargs: Any) -> Any:
            step = self.step
            if step is None or step.rows is None:
                output = forward(*args, **kwargs)
                if self.tail is not None:
                    self.tail.warm_up(kwargs["positions"])
                return output
            context = _forward_context()
            context.slot_mapping = {**context.slot_mapping, **step.slots}
            if not step.rows.prompts:
                return forward(*args, **kwargs)
            context.skip_compiled = True  # what is compiled has one length for all layers
            behind = self.tail if self.tail is not None and self.tail.ready else None
            record = self._recorder(step.rows)
            passage = Passage(step.rows, self._criterion, self._ranks, record, behind)
            with passage.through(self._layers, self._settings.layer):
                output = forward(*args, **kwargs)
            return passage.restore(output)

        return pruning

    def _recorder(self, rows: Rows) -> Recorder | None:
        """Whom to tell which tokens of these prompts stay, if anybody wants to know."""
        if self.record is None and all(prompt.tell is None for _, prompt in rows.prompts):
            return None
        return self._note

    def _note(self, prompt: Prompt, stays: Tensor) -> None:
        self.notes.put(prompt, stays)
        if self.record is not None:
            self.record(prompt, stays)


def install(model: Any, vllm_config: Any) -> None:
    """Prepares a freshly loaded target for pruning, if its engine is configured for it.

    Raises:
        MmspecError: the attention backend is one that cannot be used.
    """
    settings = engine_settings(vllm_config.additional_config)
    if settings is None:
        return
    layers = model.get_language_model().model.layers
    pruner = Pruner(settings, layers)
    attentions = [layer.self_attn.attn for layer in layers[settings.layer :]]
    backend = pruned_backend(attentions[0].attn_backend, lambda: pruner.step)
    for attention in attentions:
        attention.attn_backend = backend
    if _compiles(vllm_config):
        from mmspec.encoders.fastv.tail import Tail

        pruner.tail = Tail(model, settings.layer, vllm_config)
    model.forward = pruner.wrap(model.forward)
    setattr(model, ATTRIBUTE, pruner)
    _tell(settings, vllm_config, backend.get_name())


def pruner_of(model: Any) -> Pruner | None:
    """The pruner of a model, if one is installed."""
    return getattr(model, ATTRIBUTE, None)


def _tell(settings: FastVSettings, vllm_config: Any, backend: str) -> None:
    _log.info(
        "mmspec: FastV from layer %d on, keeping %s of the visual tokens by '%s', on %s; %s",
        settings.layer,
        settings.keep if settings.keep_tokens is None else f"at most {settings.keep_tokens}",
        settings.scores,
        backend,
        "steps that prune run eager up to that layer, where the batch changes its length, and compiled from there "
        "on, without CUDA graphs; all others as ever, with CUDA graphs, where there are any, between the attention "
        "calls only"
        if _compiles(vllm_config)
        else "all steps run eager, as configured",
    )


def _compiles(vllm_config: Any) -> bool:
    from vllm.config import CompilationMode

    return bool(vllm_config.compilation_config.mode != CompilationMode.NONE)


def _forward_context() -> Any:
    from vllm.forward_context import get_forward_context

    return get_forward_context()


def _tensor_parallel() -> Ranks:
    from vllm.distributed.parallel_state import get_tp_group

    group = get_tp_group()

    def add(tensor: Tensor) -> Tensor:
        total: Tensor = group.all_reduce(tensor)
        return total

    return Ranks(add if group.world_size > 1 else lambda tensor: tensor, group.world_size)
