"""Changes to vLLM that no extension point allows: one file each, all of them in `LEDGER`."""

from collections.abc import Iterable

from mmspec.patches.adjacent_pictures import PASS_BETWEEN_PICTURES
from mmspec.patches.chunk_token import NEXT_PROMPT_TOKEN
from mmspec.patches.draft_slots import PLAIN_INDICES, SLOTS_BY_INDEX
from mmspec.patches.encoder_weights import LOOK_AT_WEIGHTS, NOTICE_CALLS, NOTICE_RESET, NOTICE_SLEEP
from mmspec.patches.engine_config import CHECK_CONFIGURATION
from mmspec.patches.fastv_model import PREPARE_TARGET
from mmspec.patches.fastv_steps import BEGIN_STEP, ORDER_V1, ORDER_V2
from mmspec.patches.kernel_overrides import SEARCH_WITHOUT_LLVMLITE
from mmspec.patches.output_width import SKIP_WIDTHS
from mmspec.patches.patch import Patch, PatchError
from mmspec.patches.picture_identity import IDENTIFIERS_BY_ORIGIN, IDS_AS_GIVEN, NAMES_BY_ORIGIN
from mmspec.patches.preempted_pictures import ENTERED_PICTURES, SETTLE_PREEMPTED
from mmspec.patches.request_arguments import SETTLE_REQUEST
from mmspec.patches.sampled_drafts import MARK_SAMPLING, SPREAD_SAMPLING
from mmspec.patches.unsent_pictures import FOLLOW_SENDING, KNOWN_WHEN_SENT, REFUSED_LATE, SEND_AGAIN
from mmspec.patches.watched_answers import WATCH_ANSWER

# Applied by the plugin in every process of vLLM: must pass straight through where mmspec is not configured, and
# be lazy unless its module is there before plugins load.
AT_LOAD: tuple[Patch, ...] = (
    CHECK_CONFIGURATION,
    PLAIN_INDICES,
    SLOTS_BY_INDEX,
    NEXT_PROMPT_TOKEN,
    PASS_BETWEEN_PICTURES,
    ENTERED_PICTURES,
    SETTLE_PREEMPTED,
    MARK_SAMPLING,
    SPREAD_SAMPLING,
    PREPARE_TARGET,
    BEGIN_STEP,
    ORDER_V1,
    ORDER_V2,
    SETTLE_REQUEST,
    WATCH_ANSWER,
    FOLLOW_SENDING,
    KNOWN_WHEN_SENT,
    SEND_AGAIN,
    REFUSED_LATE,
    IDS_AS_GIVEN,
    NAMES_BY_ORIGIN,
    IDENTIFIERS_BY_ORIGIN,
    NOTICE_CALLS,
    NOTICE_SLEEP,
    NOTICE_RESET,
    LOOK_AT_WEIGHTS,
    SKIP_WIDTHS,
)
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
