"""How much slower an engine's steps are while the feature cache saves what was just encoded.

python benchmarks/cache_saving.py [--out benchmarks/results/cache_saving.json]

One engine answers about new pictures, in pairs: one picture's features are saved to the disk tier, the other's are not,
and which of them comes first changes. Every step is timed. Two kinds of pairs take turns:

- `own`: the model's own features are saved, as they are;
- `large`: for each picture as much is saved as Qwen2.5-VL-7B makes of one of 1,344 × 1,344 pixels in bfloat16, beside
  the steps of a much smaller model, which is harder on them than any real engine is.

`whole` compares the steps of a request from first to last, `first_steps` those right behind the encoding, during which
the saving goes on; both are medians over the pairs, with quartiles. The machine should have nothing else to do.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mmspec.bench.provenance import write_result

_LARGE = (2304, 3584)
_FIRST = 4  # steps
_PROMPT = (
    "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What is in the picture?<|im_end|>\n"
    "<|im_start|>assistant\n"
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--out", type=Path, help="write the result with its provenance to this file")
    parser.add_argument("--json", action="store_true", help="print nothing but the result")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=16, help="of each answer")
    given = parser.parse_args()
    if given.pairs < 2:
        parser.error("--pairs: give at least 2, which quartiles need")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    if given.json:
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    with tempfile.TemporaryDirectory() as folder:
        result = _measure(given.model, Path(folder), given.pairs, given.tokens)
    if given.out:
        write_result(given.out, result)
    print(json.dumps(result), flush=True)
    os._exit(0)  # vLLM's own exit handlers may wait for threads that never end


def _measure(model: str, folder: Path, pairs: int, tokens: int) -> dict[str, Any]:
    import torch

    from mmspec import LLM, EncoderCacheConfig

    cache = EncoderCacheConfig(directory=str(folder), disk_size="100GB", queue_size="1GB")
    llm = LLM(model, draft=None, encoder_cache=cache, enable_prefix_caching=False, max_num_seqs=1)
    asking = _Asking(llm, tokens)
    large = torch.randn(_LARGE, dtype=torch.bfloat16)
    ways: dict[str, Callable[[Any], Any]] = {"own": lambda features: features, "large": lambda _: large}
    for saved in ways.values():  # warm-up
        asking.pair(saved, saving_first=True)
    found: dict[str, list[tuple[list[float], list[float]]]] = {name: [] for name in ways}
    for number in range(pairs):
        for name, saved in ways.items():
            found[name].append(asking.pair(saved, saving_first=number % 2 == 0))
    result: dict[str, Any] = {name: _compared(timed) for name, timed in found.items()}
    for name in ways:
        result[name]["bytes"] = large.nbytes if name == "large" else asking.own_bytes
    result["worst"] = max(result[name][what] for name in ways for what in ("whole", "first_steps"))
    return result


def _compared(pairs: list[tuple[list[float], list[float]]]) -> dict[str, Any]:
    def ratios(part: slice) -> list[float]:
        """First quartile, median and third quartile."""
        found = [sum(saving[part]) / sum(other[part]) for saving, other in pairs]
        return [round(one, 4) for one in statistics.quantiles(found, n=4)]

    whole, first = ratios(slice(None)), ratios(slice(1, 1 + _FIRST))
    steps = [seconds for _, unsaved in pairs for seconds in unsaved[1:]]
    return {
        "pairs": len(pairs),
        "whole": whole[1],
        "whole_spread": whole[::2],
        "first_steps": first[1],
        "first_steps_spread": first[::2],
        "step_ms": round(statistics.median(steps) * 1e3, 2),
    }


class _Asking:
    """An engine that is asked about one new picture after another."""

    def __init__(self, llm: Any, tokens: int) -> None:
        from vllm import SamplingParams
        from vllm.distributed.ec_transfer import get_ec_transfer

        self._engine, self._pictures = llm.llm_engine, 0
        self._sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
        self._connector = get_ec_transfer()
        self._worker, self._saver = self._connector._worker, self._connector._worker._saver
        self.own_bytes = 0

    def pair(self, saved: Callable[[Any], Any], *, saving_first: bool) -> tuple[list[float], list[float]]:
        """Seconds of the steps of a request whose picture is saved, and of one whose is not."""
        if saving_first:
            return self._saving(saved), self._not_saving()
        other = self._not_saving()
        return self._saving(saved), other

    def _saving(self, saved: Callable[[Any], Any]) -> list[float]:
        asking, saver = self, self._saver

        class Saver:
            def offer(self, key: Any, features: Any) -> bool:
                asking.own_bytes = features.nbytes
                return bool(saver.offer(key, saved(features)))

        self._worker._saver = Saver()
        seconds = self._steps()
        assert saver.flush(60) and self._connector._store.flush(60)
        return seconds

    def _not_saving(self) -> list[float]:
        self._worker._saver = None
        return self._steps()

    def _steps(self) -> list[float]:
        self._engine.add_request(str(self._pictures), self._prompt(), self._sampling)
        seconds = []
        while self._engine.has_unfinished_requests():
            start = time.perf_counter()
            self._engine.step()
            seconds.append(time.perf_counter() - start)
        return seconds

    def _prompt(self) -> dict[str, Any]:
        import numpy as np
        from PIL import Image

        self._pictures += 1
        pixels = np.random.default_rng(self._pictures).integers(0, 256, (224, 224, 3), dtype=np.uint8)
        return {"prompt": _PROMPT, "multi_modal_data": {"image": Image.fromarray(pixels)}}


if __name__ == "__main__":
    main()
