"""Lets the plugin read `additional_config["mmspec"]` before an engine loads weights."""

import functools
import sys
from collections.abc import Callable
from typing import Any

from mmspec.compat import SUPPORTED
from mmspec.errors import MmspecError
from mmspec.patches.configured import is_configured
from mmspec.patches.patch import Patch


def _wrap(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def create_engine_config(self: Any, usage_context: Any = None, headless: bool = False) -> Any:
        if not is_configured(self.additional_config):
            return original(self, usage_context, headless)
        # Imported here: an engine that does not use mmspec pays nothing for it.
        from mmspec.engine_args import check_engine, fill_engine_args

        try:
            fill_engine_args(self)
            vllm_config = original(self, usage_context, headless)
            check_engine(vllm_config, takes_features=self.enable_mm_embeds)
        except MmspecError as error:
            _end_server(error, usage_context)
            raise
        return vllm_config

    return create_engine_config


def _end_server(error: MmspecError, usage_context: Any) -> None:
    """`vllm serve` would bury the line under a traceback; who calls the Python API wants the exception."""
    from vllm.usage.usage_lib import UsageContext

    if usage_context == UsageContext.OPENAI_API_SERVER:
        print(f"mmspec: {error}", file=sys.stderr, flush=True)
        raise SystemExit(error.exit_code) from None


CHECK_CONFIGURATION = Patch(
    target="vllm.engine.arg_utils:EngineArgs.create_engine_config",
    parameters=("self", "usage_context", "headless"),
    wrap=_wrap,
    why="a general plugin is never shown the configuration, so wrong options would be ignored in silence; "
    "without additional_config['mmspec'] the call goes straight through",
    upstream="none: general plugins have no such hook",
    versions=SUPPORTED,
    remove_when="vLLM shows general plugins the configuration before it builds an engine",
)
