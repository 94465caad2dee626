"""Which visual tokens were kept, told by an engine that runs in this process."""

from dataclasses import dataclass
from typing import Any

from mmspec.encoders.fastv.prompt import Prompt
from mmspec.encoders.fastv.telling import flags_of
from mmspec.encoders.harmless import leaves_weights_alone
from mmspec.errors import MmspecError


@dataclass(frozen=True)
class Kept:
    """What became of one request's visual tokens.

    Attributes:
        pictures: for each picture, whether each of its tokens was kept, in the order of the prompt.
        indices: of the kept ones in the prompt, ascending.
    """

    pictures: list[list[bool]]
    indices: list[int]


def record_kept(llm: Any) -> dict[str, Kept]:
    """A mapping by request id that fills up while the engine prunes; the device is waited for at each pruned prompt.

    Raises:
        MmspecError: the engine runs in another process.
    """
    if not hasattr(llm.llm_engine.engine_core, "engine_core"):
        raise MmspecError(
            "what was kept can be shown of an engine in this process only; unset VLLM_ENABLE_V1_MULTIPROCESSING"
        )
    from mmspec.encoders.fastv.pruner import pruner_of

    found: dict[str, Kept] = {}

    def record(prompt: Prompt, indices: Any) -> None:
        kept = indices.tolist()
        # vLLM makes ids unique by a suffix that the user's side does not see.
        found[prompt.name.rpartition("-")[0] or prompt.name] = Kept(flags_of(prompt, kept), kept)

    @leaves_weights_alone
    def listen(model: Any) -> None:
        if pruner := pruner_of(model):
            pruner.record = record

    llm.apply_model(listen)
    return found
