"""Hidden states: how many, how wide, and from which of the target's layers.

vLLM counts a layer's state as it enters the layer: 0 is the embedding, `num_hidden_layers` the state behind the last.
"""

from collections.abc import Iterator

from mmspec.heads.check.mismatch import Mismatch
from mmspec.heads.formats.head import Head
from mmspec.heads.target import Target

_ASPECT = "layers"
_FEWEST = 7  # layers of a target from which 2, n // 2 and n - 3 are three different ones, in this order
_ANOTHER = "give the target that it was trained for, or train a head for this one"


def check_layers(head: Head, target: Target) -> Iterator[Mismatch]:
    """Widths of the states, and the layers that they are taken from."""
    yield from _check_widths(head, target)
    yield from _check_count(head)
    if head.aux_layers is None and target.layers < _FEWEST:
        found = f"the head names no layers, and vLLM's choice of three needs a target of {_FEWEST}, not {target.layers}"
        yield Mismatch(_ASPECT, found, "set eagle_aux_hidden_state_layer_ids in config.json")
        return
    yield from _check_ids(head.aux_layers or [2, target.layers // 2, target.layers - 3], target)


def _check_widths(head: Head, target: Target) -> Iterator[Mismatch]:
    read = head.config.get("target_hidden_size") or head.layer["hidden_size"]
    if read != target.hidden_size:
        found = f"the head reads hidden states of width {read}, the target's are {target.hidden_size} wide"
        yield Mismatch("hidden size", found, _ANOTHER)


def _check_count(head: Head) -> Iterator[Mismatch]:
    """vLLM sizes `fc` for three states unless the layer's own configuration says otherwise."""
    nested = (head.layer.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    taken = head.layer.get("num_aux_hidden_states") or (len(nested) if nested else 3)
    if taken != head.aux_states:
        found = f"the head takes {head.aux_states} states, and vLLM would size its fc for {taken}"
        mend = f"set num_aux_hidden_states to {head.aux_states} in transformer_layer_config; mmspec head convert does"
        yield Mismatch(_ASPECT, found, mend)


def _check_ids(ids: list[int], target: Target) -> Iterator[Mismatch]:
    if wrong := [layer for layer in ids if not 0 <= layer <= target.layers]:
        found = f"layer {wrong[0]} is not in the target, whose layers are 0 to {target.layers}"
        yield Mismatch(_ASPECT, found, _ANOTHER)
    if ids != sorted(set(ids)):
        found = f"layers {ids} are not ascending, and vLLM sorts them and drops repetitions"
        yield Mismatch(_ASPECT, found, "train with ascending layers, each once")
    shallow = [layer for layer in ids if layer < target.deepstack_layers]
    if shallow:
        found = (
            f"layer {', '.join(map(str, shallow))} lies before the last of the {target.deepstack_layers} layers "
            "that get visual features (DeepStack), so the head sees only part of a picture there"
        )
        mend = f"train with layers from {target.deepstack_layers} on"
        yield Mismatch(_ASPECT, found, mend, fatal=False)
