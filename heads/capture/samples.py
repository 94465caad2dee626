"""From an answered sequence and its states to what is stored."""

from collections.abc import Sequence

import torch

from mmspec.errors import MmspecError
from mmspec.heads.capture.conversations import Conversation
from mmspec.heads.capture.sequences import Answered, Prompt, States
from mmspec.heads.capture.shards import SampleRecord
from mmspec.heads.capture.store import Sample
from mmspec.heads.capture.target import CaptureTarget

_BYTES_OF_TOKEN = 8 + 1 + 1 + 3 * 8  # id, loss mask, visual or not, M-RoPE ids


def needed_bytes(sequences: Sequence[Answered], target: CaptureTarget, dtype: str) -> int:
    """At most what the sequences take, in the spool or stored, with their pictures' features."""
    states = (len(target.aux_layer_ids) + 1) * _width(target, dtype) + _BYTES_OF_TOKEN
    return sum(
        len(sequence.prompt.token_ids) * states + features_bytes(sequence.prompt, target, dtype)
        for sequence in sequences
    )


def features_bytes(prompt: Prompt, target: CaptureTarget, dtype: str) -> int:
    """At most what the features of a prompt's pictures take."""
    return int(prompt.is_visual().sum()) * _width(target, dtype)


def _width(target: CaptureTarget, dtype: str) -> int:
    """Bytes of one state, in the spool or stored."""
    return max(_dtype(dtype).itemsize, _dtype(target.dtype).itemsize) * target.hidden_size


def make_sample(
    conversation: Conversation, part: int, answered: Answered, states: States, dtype: str
) -> Sample:
    """One sequence as it is stored.

    Raises:
        MmspecError: the states are not numbers, or do not fit `dtype`.
    """
    prompt, mask = answered.prompt, answered.loss_mask()
    tensors = {
        "input_ids": torch.tensor(prompt.token_ids),
        "loss_mask": mask,
        "is_visual": prompt.is_visual(),
        "hidden_states": convert(states.hidden_states, dtype),
        "last_hidden": convert(states.last_hidden, dtype),
    }
    if states.mrope_positions is not None:
        tensors["mrope_positions"] = states.mrope_positions
    record = SampleRecord(
        key=conversation.key,
        line=conversation.line,
        part=part,
        tokens=len(mask),
        answer_tokens=int(mask.sum()),
        pictures=prompt.picture_keys,
    )
    return Sample(record, tensors)


def convert(values: torch.Tensor, dtype: str) -> torch.Tensor:
    """The values in another precision.

    Raises:
        MmspecError: they are not numbers, or too large.
    """
    converted = values.to(_dtype(dtype)).contiguous()
    if converted.isfinite().all():
        return converted
    if values.isfinite().all():
        raise MmspecError(f"states of the target are too large for {dtype}; give --dtype bfloat16 or float32")
    raise MmspecError("the target computed infinite numbers or NaN")


def _dtype(name: str) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, name)
    return dtype
