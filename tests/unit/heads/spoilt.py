"""Ways to spoil a head or its target in one thing, with what a check says of each."""

import json
from collections.abc import Callable

import torch

from tests.unit.heads.conftest import Pair, Tensors

Spoil = Callable[[Pair], object]
SECTIONS = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]}


def tensors(change: Callable[[Tensors], object]) -> Spoil:
    return lambda pair: pair.change(change)


def set_head(**values: object) -> Spoil:
    return lambda pair: pair.set_head(**values)


def set_layer(**values: object) -> Spoil:
    return lambda pair: pair.set_layer(**values)


def set_text(**values: object) -> Spoil:
    return lambda pair: pair.set_text(**values)


def set_target(**values: object) -> Spoil:
    return lambda pair: pair.set_target(**values)


def drop(name: str) -> Spoil:
    return lambda pair: pair.drop_from_head(name)


def both(*spoils: Spoil) -> Spoil:
    return lambda pair: [spoil(pair) for spoil in spoils]


def rename(found: Tensors) -> None:
    found["layer0.mlp.up_proj.weight"] = found.pop("layers.0.mlp.up_proj.weight")


def widen(found: Tensors) -> None:
    found["fc.weight"] = torch.cat([found["fc.weight"], found["fc.weight"][:, :64]], dim=1)


def hold_ids(found: Tensors) -> None:
    found["d2t"] = found["t2d"].nonzero().flatten()


FATAL: dict[str, tuple[Spoil, str]] = {
    "another vocabulary": (set_text(vocab_size=600), "vocabulary: .* 512 tokens, the target has 600"),
    "d2t out of range": (tensors(lambda t: t["d2t"].add_(505)), "d2t leads to token .* outside the target's"),
    "d2t holds ids": (tensors(hold_ids), "vocabulary: d2t holds token ids"),
    "d2t in another order": (tensors(lambda t: t["d2t"][:2].copy_(t["d2t"][:2].flip(0) + 5)), "not ascending"),
    "d2t and t2d differ": (tensors(lambda t: t["t2d"].logical_not_()), "d2t and t2d name different tokens"),
    "t2d too short": (tensors(lambda t: t.update(t2d=t["t2d"][:500])), "t2d has 500 entries .* of 512"),
    "no d2t": (tensors(lambda t: t.pop("d2t")), "vocabulary: d2t is missing"),
    "another width": (set_text(hidden_size=128), "hidden size: .* width 64, the target's are 128"),
    "a layer out of range": (set_head(eagle_aux_hidden_state_layer_ids=[2, 4, 9]), "layers: layer 9 .* 0 to 8"),
    "layers out of order": (set_head(eagle_aux_hidden_state_layer_ids=[4, 2, 5]), "layers: .*not ascending"),
    "a layer twice": (set_head(eagle_aux_hidden_state_layer_ids=[2, 4, 4]), "layers: .*not ascending"),
    "no layers for a shallow target": (
        both(set_head(eagle_aux_hidden_state_layer_ids=None), set_text(num_hidden_layers=6)),
        "layers: .*needs a target of 7, not 6",
    ),
    "four layers": (
        both(set_head(eagle_aux_hidden_state_layer_ids=[2, 3, 4, 5]), tensors(widen)),
        "layers: the head takes 4 states, and vLLM would size its fc for 3",
    ),
    "fc for four layers": (tensors(widen), r"weights: fc.weight has the shape \[64, 256\].*\[64, 192\]"),
    "a family without EAGLE-3": (
        set_target(architectures=["LlavaNextForConditionalGeneration"]),
        "family: the target is a LlavaNext.* hands out no hidden states",
    ),
    "a language model without EAGLE-3": (
        set_text(architectures=["GPT2LMHeadModel"]),
        "family: the target's language model is a GPT2LMHeadModel",
    ),
    "sections with sequence positions": (
        both(set_layer(rope_parameters=SECTIONS), set_head(mmspec={"positions": "sequence"})),
        r"rope: the head has M-RoPE sections \[4, 6, 6\].* positions is sequence",
    ),
    "3-D positions without sections": (set_head(mmspec={"positions": "mrope"}), "rope: .* no mrope_section"),
    "sections that do not fill a head": (
        both(
            set_layer(rope_parameters=SECTIONS | {"mrope_section": [4, 4, 4]}),
            set_head(mmspec={"positions": "mrope"}),
        ),
        r"rope: M-RoPE sections \[4, 4, 4\] sum to 12, and half of what is rotated is 16",
    ),
    "3-D positions for a target without": (
        both(
            set_layer(rope_parameters=SECTIONS),
            set_head(mmspec={"positions": "mrope"}),
            set_text(rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
        ),
        "rope: .* the target has no 3-D positions",
    ),
    "weights that are no floats": (
        tensors(lambda t: t.update({"fc.weight": t["fc.weight"].to(torch.int8)})),
        "dtype: fc.weight is stored as I8",
    ),
    "another target's weights": (
        set_head(mmspec={"target_fingerprint": "0" * 64}),
        "origin: .* trained for the weights 000000000000, these are",
    ),
    "another architecture": (
        set_head(speculators_config={"verifier": {"architectures": ["Qwen3VLForConditionalGeneration"]}}),
        "origin: .* for a Qwen3VL.*, the target is a Qwen2_5_VL",
    ),
    "a missing tensor": (tensors(lambda t: t.pop("norm.weight")), "weights: norm.weight is missing; save"),
    "a renamed tensor": (
        tensors(rename),
        "weights: layers.0.mlp.up_proj.weight is missing, and layer0.mlp.up_proj.weight may be it; rename",
    ),
    "a tensor too many": (tensors(lambda t: t.update(rest=torch.ones(1))), "weights: rest belongs to no EAGLE-3 head"),
    "a tensor of another shape": (
        tensors(lambda t: t.update({"norm.weight": torch.ones(32)})),
        r"weights: norm.weight has the shape \[32\], and config.json asks for \[64\]",
    ),
    "a global head of no width": (set_head(mmspec={"vision": "global"}), "settings: .* mmspec.summary_size does not"),
    "a global head without its score": (
        both(
            set_head(mmspec={"vision": "global", "summary_size": 8}),
            tensors(lambda t: t.update({"vision.up.weight": torch.ones(8, 64)})),
            tensors(lambda t: t.update({"vision.down.weight": torch.ones(64, 8)})),
        ),
        "weights: vision.score.weight is missing",
    ),
    "a summary that nobody reads": (
        tensors(lambda t: t.update({"vision.up.weight": torch.ones(1)})),
        "weights: vision.up.weight belongs to no EAGLE-3 head",
    ),
    "an embedding never loaded": (
        tensors(lambda t: t.update({"embed_tokens.weight": torch.full((512, 64), torch.nan, dtype=torch.bfloat16)})),
        "weights: embed_tokens.weight is not a number",
    ),
    "no norm_before_residual": (drop("norm_before_residual"), "settings: norm_before_residual is not in"),
    "no speculators_config": (drop("speculators_config"), "settings: .* no speculators_config"),
    "no rms_norm_eps": (set_layer(rms_norm_eps=None), "settings: .* no rms_norm_eps"),
    "another activation": (set_layer(hidden_act="gelu"), "settings: hidden_act is 'gelu'"),
    "layers of another type": (set_layer(model_type="gemma"), "weights: .* layers of type gemma"),
    "a head that sees, for a target that does not": (
        both(set_head(mmspec={"vision": "features"}), lambda pair: copy_text_target(pair)),
        "vision: .* features, and the target takes no pictures",
    ),
}  # fmt: skip


def copy_text_target(pair: Pair) -> None:
    """Leaves the target its language model."""
    path = pair.target / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in config.items() if name != "vision_config"}))


def name_verifier(pair: Pair) -> None:
    pair.set_head(speculators_config={"verifier": {"name_or_path": "lab/another", "architectures": []}})


def halve(pair: Pair) -> None:
    pair.change(lambda t: [t.update({n: v.half()}) for n, v in list(t.items()) if v.is_floating_point()])
    pair.set_text(dtype="bfloat16")
    pair.set_target(dtype="bfloat16")


NOTES: dict[str, tuple[Spoil, str]] = {
    "no t2d": (tensors(lambda t: t.pop("t2d")), "vocabulary: t2d is missing"),
    "sections that nobody explains": (set_layer(rope_parameters=SECTIONS), "rope: .*set mmspec.positions to mrope"),
    "float16 in a bfloat16 engine": (halve, "dtype: the head is stored as F16 and would run as BF16"),
    "a quantised head": (set_head(quantization_config={"bits": 4}), "weights: the head is quantised"),
    "a target of another name": (name_verifier, "origin: .* for lab/another, which is called otherwise"),
    "a target that cannot be read": (
        lambda pair: (pair.target / "config.json").write_text("{"),
        "target: .*cannot be read",
    ),
}  # fmt: skip
