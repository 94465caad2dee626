"""The prompts and drafting methods that the engine tests run, one batch for each family."""

import importlib.util
from pathlib import Path
from typing import Any

from tests.engine.jobs import Request

MAX_TOKENS = 24
DRAFTED = 3
LOOKUP = {"shortest": 1, "longest": 3}

METHODS = ("ngram", "suffix", "draft_model", "eagle3", "eagle3_speculators")

REFUSED_BY_V2 = {"suffix": "suffix is not supported yet"}
"""Methods that vLLM's V2 runner has no speculator for, and what it says."""


def chat(family: str, question: str, images: tuple[str, ...] = ()) -> Request:
    """Returns a request in the family's own chat format, as its template would render it."""
    if family == "llava":
        return Request("USER: " + "<image>\n" * len(images) + f"{question} ASSISTANT:", images)
    pictures = "<|vision_start|><|image_pad|><|vision_end|>" * len(images)
    return Request(f"<|im_start|>user\n{pictures}{question}<|im_end|>\n<|im_start|>assistant\n", images)


def mixed_batch(family: str) -> list[Request]:
    """Text alone, one picture, the same question on another picture, another question, two pictures."""
    return [
        chat(family, "What is in the picture?"),
        chat(family, "What is in the picture?", ("red_square",)),
        chat(family, "What is in the picture?", ("blue_disc",)),
        chat(family, "How many apples: one, two, three?", ("stripes",)),
        chat(family, "Compare the first picture with the second.", ("red_square", "blue_disc")),
    ]


def speculative_config(method: str, checkpoints: dict[str, Path]) -> dict[str, Any] | None:
    """Returns vLLM's `speculative_config` for a method of `METHODS`, or None for `none`."""
    if method == "none":
        return None
    config: dict[str, Any] = {"method": method, "num_speculative_tokens": DRAFTED}
    if method == "ngram":
        config |= {"prompt_lookup_min": LOOKUP["shortest"], "prompt_lookup_max": LOOKUP["longest"]}
    elif method == "draft_model":
        config["model"] = str(checkpoints["llama"])
    elif method.startswith("eagle3"):
        config |= {"method": "eagle3", "model": str(checkpoints[method])}
    return config


def missing_package(method: str) -> str | None:
    """Returns why a method cannot run here, or None."""
    if method == "suffix" and importlib.util.find_spec("arctic_inference") is None:
        return "suffix decoding needs the package arctic-inference, which is not installed"
    return None
