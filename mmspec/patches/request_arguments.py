"""Reads what a request asks of mmspec where a wrong value is still the request's own mistake: a 400."""

import functools
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from mmspec.compat import SUPPORTED
from mmspec.config_errors import suggest
from mmspec.errors import MmspecError
from mmspec.patches.configured import is_configured
from mmspec.patches.patch import Patch

_DOOR = "_mmspec_fastv_door"  # on the input processor
_PREFIXES = ("mmspec", "fastv")
_ALIKE = 0.8  # of 1, from which a name is taken for one of ours


def _wrap(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def process_inputs(
        self: Any, request_id: str, prompt: Any, params: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if not is_configured(self.vllm_config.additional_config):
            return original(self, request_id, prompt, params, *args, **kwargs)
        from vllm.exceptions import VLLMValidationError

        from mmspec.encoders.fastv.requests import Door, asked_budget, settle
        from mmspec.patches.unsent_pictures import note_sent
        from mmspec.serving.asked import require_answerable

        if _DOOR not in vars(self):
            vars(self)[_DOOR] = Door.of(self.vllm_config)
        door: Door | None = vars(self)[_DOOR]
        try:
            refuse_misspelt(params)
            require_answerable(params, self.vllm_config.scheduler_config.scheduler_cls)
            budget = asked_budget(params, None if door is None else door.settings)
            request = original(self, request_id, prompt, params, *args, **kwargs)
            if door is not None:
                settle(request, budget, door)
            note_sent(self, request)
        except MmspecError as error:
            raise VLLMValidationError(str(error)) from None
        return request

    return process_inputs


def refuse_misspelt(params: Any) -> None:
    """Extra arguments are anybody's, and vLLM lets unknown ones pass; those that resemble ours are meant for us.

    Args:
        params: vLLM's `SamplingParams`, or parameters of another kind of request.

    Raises:
        MmspecError: a name that begins like ours, or is close to one of them, and is none.
    """
    from mmspec.encoders.fastv.budget import KEEP, KEEP_TOKENS
    from mmspec.encoders.fastv.prompt import TELL
    from mmspec.serving.asked import DRAFT, STATS

    ours = (STATS, DRAFT, KEEP, KEEP_TOKENS)
    for name in map(str, getattr(params, "extra_args", None) or ()):
        if name in ours or name == TELL:  # TELL is added by the server
            continue
        alike = name.lower().replace("-", "_")
        if alike.startswith(_PREFIXES) or get_close_matches(alike, ours, n=1, cutoff=_ALIKE):
            raise MmspecError(f"{name}: unknown argument of a request; {suggest(alike, ours)}")


SETTLE_REQUEST = Patch(
    target="vllm.v1.engine.input_processor:InputProcessor.process_inputs",
    parameters=(
        "self",
        "request_id",
        "prompt",
        "params",
        "supported_tasks",
        "arrival_time",
        "lora_request",
        "tokenization_kwargs",
        "trace_headers",
        "priority",
        "data_parallel_rank",
        "resumable",
        "session_id",
        "kv_hints",
    ),
    wrap=_wrap,
    why="`fastv_keep`, `mmspec_stats` and `mmspec_draft` in a request's extra arguments would be ignored in silence or "
    "end the engine when wrong or misspelt, and pruned prompts would share blocks of the prefix cache",
    upstream="none: extra arguments have no hook where they are checked",
    versions=SUPPORTED,
    remove_when="vLLM lets plugins check requests and keep them apart in the prefix cache",
    lazy=True,
)
