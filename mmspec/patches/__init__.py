"""Changes to vLLM that no extension point allows: one file each, all of them in `LEDGER`."""

from collections.abc import Iterable

from mmspec.patches.engine_config import CHECK_CONFIGURATION
from mmspec.patches.kernel_overrides import SEARCH_WITHOUT_LLVMLITE
from mmspec.patches.patch import Patch, PatchError

# Applied by the plugin in every process of vLLM: must pass straight through where mmspec is not configured.
AT_LOAD: tuple[Patch, ...] = (CHECK_CONFIGURATION,)
# Applied by `mmspec.LLM`, whose engine may run in the user's process.
IN_PROCESS: tuple[Patch, ...] = (SEARCH_WITHOUT_LLVMLITE,)
LEDGER: tuple[Patch, ...] = AT_LOAD + IN_PROCESS


def apply_missing(patches: Iterable[Patch]) -> None:
    """Applies those of `patches` that this process does not have yet."""
    for patch in patches:
        if not patch.applied:
            patch.apply()


def as_markdown(ledger: Iterable[Patch] = LEDGER) -> str:
    """The ledger as a table, for the documentation."""
    rows = ["| target | why | upstream | versions | goes when |", "| --- | --- | --- | --- | --- |"]
    rows += [
        f"| `{patch.target}` | {patch.why} | {patch.upstream} | {patch.versions} | {patch.remove_when} |"
        for patch in ledger
    ]
    return "\n".join(rows)


__all__ = ["AT_LOAD", "IN_PROCESS", "LEDGER", "Patch", "PatchError", "apply_missing", "as_markdown"]
