"""One engine of `mmspec bench encoder-cache`, in a process of its own: `python -m mmspec.bench.cache_engine JOB`."""

import json
import math
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mmspec.errors import MmspecError

_PROMPT = (
    "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What is in the picture?<|im_end|>\n"
    "<|im_start|>assistant\n"
)


@dataclass(frozen=True)
class Ask:
    """One request.

    Attributes:
        picture: a picture's file.
        features: a file with its features, handed in instead of it.
        keep: where to write what the vision tower made of it.
    """

    picture: str
    features: str | None = None
    keep: str | None = None


@dataclass(frozen=True)
class Answer:
    """What a request took, from its arrival to its first token, and what it said."""

    ttft_ms: float
    token_ids: list[int]
    tier: str | None


@dataclass
class Job:
    """What one engine does.

    Attributes:
        engine: arguments of `mmspec.LLM`.
        cache: options of the encoder cache.
        warm_up: asked first, and not reported.
    """

    engine: dict[str, Any]
    cache: dict[str, Any]
    asks: list[Ask]
    warm_up: list[Ask] = field(default_factory=list)
    max_tokens: int = 4


def run(job: Job, folder: Path) -> tuple[list[Answer], int]:
    """Runs an engine in a new process; returns its answers and how many pictures it encoded.

    Raises:
        MmspecError: the engine failed; its log is named.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.json").write_text(json.dumps(asdict(job)))
    with (folder / "engine.log").open("w") as log:
        done = subprocess.run(
            [sys.executable, "-m", "mmspec.bench.cache_engine", str(folder)],
            stdout=log,
            stderr=log,
            env={**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
            check=False,
        )
    if done.returncode or not (folder / "result.json").exists():
        tail = (folder / "engine.log").read_text(errors="replace").strip().splitlines()[-1:]
        raise MmspecError(f"bench: an engine failed: {tail[0] if tail else 'without a word'}")
    result = json.loads((folder / "result.json").read_text())
    return [Answer(**answer) for answer in result["answers"]], result["encoded"]


def _main(folder: Path) -> None:
    from mmspec.config import DraftConfig, EncoderCacheConfig
    from mmspec.llm import LLM

    job = json.loads((folder / "job.json").read_text())
    draft = job["engine"].pop("draft", None)
    draft = DraftConfig(**draft) if draft else None
    llm = LLM(draft=draft, **job["engine"], encoder_cache=EncoderCacheConfig(**job["cache"]), intake=None)
    encoded = _count(llm)
    for ask in job["warm_up"]:
        _answer(llm, ask, job["max_tokens"])
    answers = [_answer(llm, ask, job["max_tokens"]) for ask in job["asks"]]
    llm.close()
    (folder / "result.json").write_text(
        json.dumps({"answers": [asdict(answer) for answer in answers], "encoded": sum(encoded)})
    )


def _answer(llm: Any, ask: dict[str, Any], max_tokens: int) -> Answer:
    from vllm import SamplingParams

    prompt = {"prompt": _PROMPT, "multi_modal_data": {"image": _given(ask)}}
    sampling = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    output = llm.generate(prompt, sampling, use_tqdm=False)[0]
    if ask["keep"]:
        _keep(llm, ask["keep"])
    return Answer(output.mmspec.ttft_ms, list(output.outputs[0].token_ids), output.mmspec.encoder_cache.tier)


def _given(ask: dict[str, Any]) -> Any:
    from PIL import Image

    if ask["features"] is None:
        picture = Image.open(ask["picture"])
        picture.load()
        return picture
    import torch
    from safetensors.torch import load_file

    from mmspec.encoders.pocket.architecture import MERGE_SIZE

    features = load_file(ask["features"])["features"]
    side = MERGE_SIZE * math.isqrt(len(features))  # patches; pictures are square
    return {"image_embeds": features, "image_grid_thw": torch.tensor([[1, side, side]])}


def _count(llm: Any) -> list[int]:
    """Gets, with each run of the vision tower, the number of pictures in it."""
    model = _runner(llm).get_model()
    runs: list[int] = []
    embed = model.embed_multimodal

    def counting(**pictures: Any) -> Any:
        if any(name.startswith("pixel_values") for name in pictures):
            runs.append(len(pictures["image_grid_thw"]))
        return embed(**pictures)

    model.embed_multimodal = counting
    return runs


def _keep(llm: Any, path: str) -> None:
    """Writes the features that vLLM's own cache got last."""
    from safetensors.torch import save_file

    cache = _runner(llm).encoder_cache
    features = list(getattr(cache, "encoder_outputs", cache).values())[-1]
    save_file({"features": features.detach().cpu().contiguous().clone()}, path)


def _runner(llm: Any) -> Any:
    return llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.model_runner


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
    os._exit(0)  # vLLM's own exit handlers may wait for threads that never end
