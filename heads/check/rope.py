"""Positions: sequence indices or the target's 3-D ids, and a rotary embedding that takes them."""

from collections.abc import Iterator

from mmspec.heads.check.mismatch import Mismatch
from mmspec.heads.check.weights import head_dim
from mmspec.heads.formats.head import Head
from mmspec.heads.target import Target

_ASPECT = "rope"


def check_rope(head: Head, target: Target) -> Iterator[Mismatch]:
    """vLLM gives 3-D ids to a head whose rotary embedding has M-RoPE sections, and to no other."""
    sections, positions = head.mrope_sections, head.settings.positions
    if positions == "mrope" and not sections:
        found = "positions is mrope, and the head's rope_parameters have no mrope_section, so it gets plain indices"
        yield Mismatch(
            _ASPECT, found, "set positions to sequence, or add the sections that it was trained with"
        )
    if positions == "sequence" and sections:
        found = f"the head has M-RoPE sections {sections}, so it gets 3-D ids, and positions is sequence"
        mend = "set mmspec.positions to mrope, or take mrope_section out of its rope_parameters"
        # A head from elsewhere does not know the setting.
        yield Mismatch(_ASPECT, found, mend, fatal="positions" in head.settings.model_fields_set)
    if sections and not target.takes_3d_positions:
        found = f"the head has M-RoPE sections {sections}, and the target has no 3-D positions to give"
        yield Mismatch(_ASPECT, found, "give a target with M-RoPE, or a head trained on sequence indices")
    rope = head.layer.get("rope_parameters") or {}
    rotated = int(head_dim(head.layer) * rope.get("partial_rotary_factor", 1.0))
    if sections and 2 * sum(sections) != rotated:
        found = f"M-RoPE sections {sections} sum to {sum(sections)}, and half of what is rotated is {rotated // 2}"
        yield Mismatch(_ASPECT, found, "set mrope_section to the sections that the head was trained with")
