"""The `vllm.general_plugins` entry point: vLLM calls `register` in every process that it starts.

Without `additional_config["mmspec"]` it changes nothing that an engine does; `mmspec.patches` has the ledger.
"""

import logging
import os

from mmspec.compat import mismatch, vllm_version
from mmspec.errors import MmspecError

NAME = "mmspec"

# Below vLLM's own root logger, so that its level and format apply.
_log = logging.getLogger("vllm.plugins.mmspec")
_loaded = False


def register() -> None:
    """Applies the patches of the ledger, once a process; does nothing beside an unsupported vLLM.

    vLLM swallows what a plugin raises while imported and passes on what it raises when called. So problems
    are logged as one line, and the engine of a user who does not use mmspec goes on.
    """
    global _loaded
    if _loaded:
        return
    if problem := mismatch(vllm_version()):
        _log.warning("mmspec is off: %s", problem)
        return
    from mmspec.heads.serving import AFTER_IMPORT
    from mmspec.patches import AT_LOAD, apply_missing
    from mmspec.patches.imports import now_or_when_imported

    try:
        apply_missing(AT_LOAD)
        for module, action in AFTER_IMPORT.items():
            now_or_when_imported(module, action)
    except Exception as error:  # an engine that does not use mmspec must not end for it
        _log.warning("mmspec is off: %s", error)
        return
    _loaded = True
    _log.debug("mmspec plugin loaded in process %d", os.getpid())


def loaded() -> bool:
    """Whether the plugin is at work in this process."""
    return _loaded


def require_allowed() -> None:
    """Raises MmspecError when `VLLM_PLUGINS` keeps vLLM from loading the plugin."""
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and NAME not in allowed.split(","):
        raise MmspecError(
            f"VLLM_PLUGINS={allowed!r} leaves out the mmspec plugin; add 'mmspec' to it or unset it"
        )
