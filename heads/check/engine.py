"""What vLLM itself asks of head and target: a family that hands out its hidden states, dtypes, parallel sizes."""

from collections.abc import Iterator

from mmspec.heads.check.mismatch import Mismatch
from mmspec.heads.check.vllm_models import has_eagle3
from mmspec.heads.check.weights import key_value_heads
from mmspec.heads.formats.head import Head, HeadFormat
from mmspec.heads.target import Target

_PADDING = 64  # vLLM pads vocabularies to a multiple of it
_DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16", "half": "F16", "float": "F32"}


def check_family(target: Target) -> Iterator[Mismatch]:
    """Both the target's class and that of its language model must support EAGLE-3."""
    inner = (target.config.get("text_config") or {}).get("architectures") or []
    for names, part in ((target.architectures, "the target"), (inner, "the target's language model")):
        known = {name: has_eagle3(name) for name in names}
        if any(known.values()):
            continue
        if no := [name for name, answer in known.items() if answer is False]:
            found = f"{part} is a {no[0]}, which hands out no hidden states in the installed vLLM"
            mend = "give --draft ngram or draft_model, or a family such as Qwen2.5-VL, Qwen3-VL or LLaVA-1.5"
            yield Mismatch("family", found, mend)


def check_vision(head: Head, target: Target) -> Iterator[Mismatch]:
    """A head that sees needs pictures, and a format in which mmspec can tell vLLM to load it."""
    vision = head.settings.vision
    if vision == "text":
        return
    if "vision_config" not in target.config:
        found = f"the head's vision is {vision}, and the target takes no pictures"
        yield Mismatch("vision", found, "give a vision-language model, or a head with vision text")
    if head.format is not HeadFormat.SPECULATORS:
        found = f"the head's vision is {vision}, which only heads in speculators' format can be served with"
        yield Mismatch("vision", found, "mmspec head convert HEAD OUT")


def check_dtype(head: Head, target: Target, dtype: str | None) -> Iterator[Mismatch]:
    """vLLM casts a head to the dtype that the target runs in.

    Args:
        dtype: what the engine was told; None or "auto" for the target's own.
    """
    wanted = target.dtype if dtype in (None, "auto") else str(dtype).removeprefix("torch.")
    running = _DTYPES.get(str(wanted))
    stored = {header.dtype for name, header in head.tensors.items() if name not in ("d2t", "t2d")}
    if {running, *stored} >= {"F16", "BF16"} and running in ("F16", "BF16"):
        kinds = ", ".join(sorted(stored))
        found = f"the head is stored as {kinds} and would run as {running}, which rounds or overflows"
        other = "bfloat16" if running == "F16" else "float16"
        mend = f"run with --dtype {other} or float32"
        yield Mismatch("dtype", found, mend, fatal=False)


def check_parallel(head: Head, draft_size: int, target_size: int | None) -> Iterator[Mismatch]:
    """Whether the head can be cut into as many parts as the target, which vLLM does whatever `draft_size` says.

    Args:
        draft_size: what vLLM is given as draft_tensor_parallel_size.
        target_size: tensor parallel size of the target, where it is known.
    """
    if target_size is not None and draft_size not in (1, target_size):
        found = f"draft_tensor_parallel_size is {draft_size}, the target's size {target_size}; vLLM takes 1 or the same"
        yield Mismatch("parallel size", found, "leave draft_tensor_parallel_size out")
        return
    parts = max(draft_size, target_size or 1)
    if uncut := _uncut(head, parts):
        found = f"{' and '.join(uncut)} cannot be cut into {parts} parts, as many as the target's"
        most = max(fewer for fewer in range(1, parts) if parts % fewer == 0 and not _uncut(head, fewer))
        mend = f"take --tensor-parallel-size {most}, or serve without a head: --draft none or ngram"
        yield Mismatch("parallel size", found, mend)


def _uncut(head: Head, parts: int) -> list[str]:
    """What does not go into so many parts; nothing for one."""
    return [what for what, size in _cut_sizes(head, parts).items() if size % parts]


def _cut_sizes(head: Head, parts: int) -> dict[str, int]:
    """What is cut, and how many of it there are."""
    layer, drafted, keys = head.layer, head.config["draft_vocab_size"], key_value_heads(head.layer)
    shared = keys < parts and parts % keys == 0  # more parts than key-value heads share them
    return {
        f"{layer['num_attention_heads']} attention heads": layer["num_attention_heads"],
        f"{keys} key-value heads": parts if shared else keys,
        f"an MLP of width {layer['intermediate_size']}": layer["intermediate_size"],
        f"a draft vocabulary of {drafted}, padded to a multiple of {_PADDING},": drafted
        + -drafted % _PADDING,
    }
