"""Does time follow arithmetic? Prefill and decode of a language model with true widths and random weights."""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from mmspec.bench.prompts import Prompt, prompt_from_image
from mmspec.config import DraftConfig, FastVConfig
from mmspec.encoders.fastv.budget import KEEP
from mmspec.errors import MmspecError

# Qwen2.5-VL-3B's language model, with fewer layers; the vocabulary is the pocket model's, since no token matters here.
WIDTHS = {
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
}
_HEAD_SIZE = WIDTHS["hidden_size"] // WIDTHS["num_attention_heads"]
_TOKEN_PIXELS = 28
_QUESTION = "word " * 38  # fifty tokens with the chat format


@dataclass(frozen=True)
class Shape:
    """The model and the prompt that are measured: layers, K, and a picture of columns × rows visual tokens."""

    layers: int = 12
    layer: int = 2
    columns: int = 40
    rows: int = 25
    dtype: str = "float32"

    @property
    def visual(self) -> int:
        return self.columns * self.rows


def operations(shape: Shape, tokens: int, kept: int) -> float:
    """Floating-point operations of a prefill of which `kept` of `tokens` tokens go on behind layer K.

    Two for each weight and token, and for each pair of tokens that attend four for each of the heads' channels, half of
    the pairs being masked. Norms, rotary embedding, scores and the last projection of one token are left out.
    """
    hidden, heads = WIDTHS["hidden_size"], WIDTHS["num_attention_heads"] + 2 * WIDTHS["num_key_value_heads"]
    weights = hidden * (heads * _HEAD_SIZE + hidden + 3 * WIDTHS["intermediate_size"])

    def layer(count: int) -> float:
        return 2.0 * weights * count + 2.0 * hidden * count**2

    return shape.layer * layer(tokens) + (shape.layers - shape.layer) * layer(kept)


def measure(
    shape: Shape,
    keeps: Sequence[float],
    *,
    repeats: int,
    compiled: bool = False,
    answer_tokens: int = 16,
    report: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Times of pruned and unpruned requests in turn: `prefill` by keep with `worst`, and `decode_ratio` by keep.

    Ratios are of pruned over unpruned time of the same round, medians of `repeats`, with the least and the most. With
    `compiled` the engine compiles, and each pruned prefill is followed by one with the layers behind K eager:
    `compiled_tail`.
    """
    with _engine(shape, answer_tokens, compiled) as llm:
        prompt = _prompt(shape)
        shares = [1.0, *keeps]
        times: dict[float, list[tuple[float, float]]] = {keep: [] for keep in shares}
        eager: dict[float, list[float]] = {keep: [] for keep in keeps if compiled}
        for number in range(repeats + 1):
            report(f"round {number} of {repeats}")
            for keep in shares if number % 2 else reversed(shares):
                found, tokens = _time(llm, prompt, keep, answer_tokens)
                if number:  # the first round warms up, and encodes the picture
                    times[keep].append(found)
                if keep in eager:
                    with _eager_tail(llm):
                        found, _ = _time(llm, prompt, keep, answer_tokens)
                    if number:
                        eager[keep].append(found[0])
    tails = {str(keep): _tail_ratio([first for first, _ in times[keep]], eager[keep]) for keep in eager}
    return {**_ratios(shape, tokens, times), **({"compiled_tail": tails} if tails else {})}


def _ratios(shape: Shape, tokens: int, times: dict[float, list[tuple[float, float]]]) -> dict[str, Any]:
    whole = operations(shape, tokens, tokens)
    unpruned = times.pop(1.0)
    base_prefill, base_decode = (median(column) for column in zip(*unpruned, strict=True))
    prefill: dict[str, Any] = {}
    decode: dict[str, float] = {}
    spread: dict[str, tuple[float, float]] = {}
    for keep, found in times.items():
        first, later = (
            [one / other for one, other in zip(*columns, strict=True)]
            for columns in zip(zip(*found, strict=True), zip(*unpruned, strict=True), strict=True)
        )
        kept = tokens - shape.visual + round(shape.visual * keep)
        theory = operations(shape, tokens, kept) / whole
        measured = median(first)
        prefill[str(keep)] = {
            "seconds": median(seconds for seconds, _ in found),
            "ratio": measured,
            "spread": (min(first), max(first)),
            "theory": theory,
            "measured_over_theory": measured / theory,
        }
        decode[str(keep)], spread[str(keep)] = median(later), (min(later), max(later))
    worst = max((one["measured_over_theory"] for one in prefill.values()), key=lambda ratio: abs(ratio - 1))
    return {
        "prefill": {**prefill, "unpruned_seconds": base_prefill, "worst": worst},
        "decode_ratio": decode,
        "decode_spread": spread,
        "unpruned_decode_seconds": base_decode,
        "prompt_tokens": tokens,
        "visual_tokens": shape.visual,
    }


def _tail_ratio(compiled: Sequence[float], eager: Sequence[float]) -> dict[str, float]:
    """Prefill with the layers behind K compiled over the eager one that came right after it."""
    ratios = [one / other for one, other in zip(compiled, eager, strict=True)]
    return {
        "seconds": median(compiled),
        "eager_seconds": median(eager),
        "ratio": median(ratios),
        "least": min(ratios),
        "most": max(ratios),
    }


@contextmanager
def _eager_tail(llm: Any) -> Iterator[None]:
    """Meanwhile an engine in this process runs the layers behind K eager in steps that prune."""
    from mmspec.encoders.fastv.pruner import pruner_of
    from mmspec.encoders.harmless import leaves_weights_alone

    @leaves_weights_alone
    def found(model: Any) -> Any:
        return pruner_of(model)

    (pruner,) = llm.apply_model(found)
    if pruner.tail is None or not pruner.tail.ready:
        raise MmspecError("the layers behind K were not compiled; with --verbose the engine's log says why")
    tail, pruner.tail = pruner.tail, None
    try:
        yield
    finally:
        pruner.tail = tail


def _time(llm: Any, prompt: Prompt, keep: float, answer_tokens: int) -> tuple[tuple[float, float], int]:
    """Seconds from the start of the prefill to the first token and from token to token; tokens of the prompt."""
    from vllm import SamplingParams

    sampling = SamplingParams(
        temperature=0, max_tokens=answer_tokens, ignore_eos=True, extra_args={KEEP: keep}
    )
    (output,) = llm.chat(prompt.messages(), sampling, use_tqdm=False)
    metrics = output.metrics
    decode = (metrics.last_token_ts - metrics.first_token_ts) / (answer_tokens - 1)
    return (metrics.first_token_ts - metrics.scheduled_ts, decode), len(output.prompt_token_ids)


@contextmanager
def _engine(shape: Shape, answer_tokens: int, compiled: bool) -> Iterator[Any]:
    from mmspec.llm import LLM

    room = shape.visual + 512 + answer_tokens
    # Without, it is mmspec's default for the machine.
    how: dict[str, Any] = {"enforce_eager": False} if compiled else {}
    with tempfile.TemporaryDirectory() as folder:
        _write_checkpoint(Path(folder), shape)
        llm = LLM(
            folder,
            draft=DraftConfig(method="none"),
            fastv=FastVConfig(layer=shape.layer, keep=1.0),
            load_format="dummy",
            dtype=shape.dtype,
            max_model_len=room,
            max_num_batched_tokens=room,
            max_num_seqs=1,
            enable_prefix_caching=False,
            **how,
        )
        try:
            yield llm
        finally:
            llm.close()


def _write_checkpoint(folder: Path, shape: Shape) -> None:
    """The pocket model's folder with other widths, and with next to no weights: vLLM draws them."""
    import torch
    from safetensors.torch import save_file

    from mmspec.encoders.pocket import build

    pocket = build()
    for path in pocket.iterdir():
        if path.is_file() and path.suffix != ".safetensors":
            shutil.copy(path, folder)
    save_file({"unused": torch.zeros(1)}, folder / "model.safetensors")
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    text = config.get("text_config", config)
    text |= WIDTHS | {"num_hidden_layers": shape.layers, "head_dim": _HEAD_SIZE}
    text["layer_types"] = ["full_attention"] * shape.layers
    text["max_window_layers"] = shape.layers
    text["rope_parameters"] = {**text["rope_parameters"], "mrope_section": [16, 24, 24]}
    config["vision_config"]["out_hidden_size"] = WIDTHS["hidden_size"]
    path.write_text(json.dumps(config), encoding="utf-8")
    path = folder / "processor_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    area = _TOKEN_PIXELS**2
    config["image_processor"]["size"] = {"shortest_edge": area, "longest_edge": shape.visual * area}
    path.write_text(json.dumps(config), encoding="utf-8")


def _prompt(shape: Shape) -> Prompt:
    from PIL import Image

    size = (shape.columns * _TOKEN_PIXELS, shape.rows * _TOKEN_PIXELS)
    return prompt_from_image("stripes", Image.linear_gradient("L").resize(size).convert("RGB"), _QUESTION)
