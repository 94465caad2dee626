"""Spares an engine with a vision-feature cache the encoding of a picture of the largest size at each start."""

import functools
from collections.abc import Callable
from typing import Any

from mmspec.compat import SUPPORTED
from mmspec.patches.configured import caches_features
from mmspec.patches.patch import Patch


def _wrap(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def measure_encoder_output_widths(vllm_config: Any, collective_rpc: Any) -> None:
        if not caches_features(vllm_config.additional_config):
            original(vllm_config, collective_rpc)

    return measure_encoder_output_widths


SKIP_WIDTHS = Patch(
    target="vllm.v1.engine.core:measure_encoder_output_widths",
    parameters=("vllm_config", "collective_rpc"),
    wrap=_wrap,
    why="an engine that saves features encodes a picture of the largest size when it starts, minutes on a CPU, to "
    "learn the width of features, which our entries say themselves",
    upstream="none: a connector cannot say that it does not need the widths",
    versions=SUPPORTED,
    remove_when="vLLM measures the widths when a connector asks for one",
    lazy=True,
)
