"""What one draft step costs beside one target step, measured inside vLLM's V1 runner while it answers.

python benchmarks/draft_step.py --head HEAD [--model pocket] [-k 5] [--profile] [--out FILE]

A target step is the runner's forward and sampling of one token in an engine that does not draft; a draft step is the
k-th part of one call of the drafter, whose first pass reads what was just accepted.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mmspec import DraftConfig
from mmspec.bench.prompts import caption_prompts
from mmspec.bench.provenance import write_result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--head", required=True, help="folder of an EAGLE-3 head")
    parser.add_argument("--model", default="pocket")
    parser.add_argument("-k", type=int, default=5, help="tokens drafted per step")
    parser.add_argument("--scenes", type=int, default=6, help="captions to answer")
    parser.add_argument(
        "--profile", action="store_true", help="also print the operators of the drafter's calls"
    )
    parser.add_argument("--out", type=Path, help="write the result with its provenance to this file")
    given = parser.parse_args()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    target = _seconds(given, DraftConfig(method="none"), _watch_target)
    draft = DraftConfig(method="eagle3", model=given.head, num_speculative_tokens=given.k)
    drafter = _seconds(given, draft, _watch_drafter)
    target_ms, draft_ms = (1000 * statistics.median(target), 1000 * statistics.median(drafter) / given.k)
    result = {
        "target_step_ms": target_ms,
        "draft_step_ms": draft_ms,
        "draft_over_target": draft_ms / target_ms,
        "target_steps": len(target),
        "drafter_calls": len(drafter),
        "k": given.k,
    }
    if given.out:
        write_result(given.out, result)
    print(json.dumps(result))


def _seconds(
    given: argparse.Namespace, draft: DraftConfig, watch: Callable[[Any, list[float]], None]
) -> list[float]:
    """What `watch` noted while the engine described scenes; the first one warms up."""
    from vllm import SamplingParams

    from mmspec import LLM

    llm = LLM(given.model, draft=draft, max_num_seqs=1, enable_prefix_caching=False)
    core = llm.llm_engine.engine_core.engine_core
    prompts = [prompt.messages() for prompt in caption_prompts(given.scenes + 1)]
    sampling = SamplingParams(temperature=0, max_tokens=64)
    llm.chat(prompts[:1], sampling, use_tqdm=False)
    noted: list[float] = []
    watch(core.model_executor.driver_worker.worker.model_runner, noted)
    if given.profile and draft.method != "none":
        _profiled(lambda: llm.chat(prompts[1:], sampling, use_tqdm=False))
    else:
        llm.chat(prompts[1:], sampling, use_tqdm=False)
    llm.close()
    return noted


def _watch_target(runner: Any, noted: list[float]) -> None:
    """Notes the seconds of every step that computes one token, forward and sampling."""
    execute, sample = runner.execute_model, runner.sample_tokens
    forward = 0.0

    def timed_execute(scheduled: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal forward
        start = time.perf_counter()
        out = execute(scheduled, *args, **kwargs)
        forward = time.perf_counter() - start if scheduled.total_num_scheduled_tokens == 1 else 0.0
        return out

    def timed_sample(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        out = sample(*args, **kwargs)
        if forward:
            noted.append(forward + time.perf_counter() - start)
        return out

    runner.execute_model, runner.sample_tokens = timed_execute, timed_sample


def _watch_drafter(runner: Any, noted: list[float]) -> None:
    """Notes the seconds of every call of the drafter behind a decode step."""
    propose = runner.propose_draft_token_ids
    longest = runner.num_spec_tokens + 1

    def timed(scheduled: Any, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        out = propose(scheduled, *args, **kwargs)
        if scheduled.total_num_scheduled_tokens <= longest:
            noted.append(time.perf_counter() - start)
        return out

    runner.propose_draft_token_ids = timed


def _profiled(work: Callable[[], Any]) -> None:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as found:
        work()
    print(found.key_averages().table(sort_by="self_cpu_time_total", row_limit=25))


if __name__ == "__main__":
    main()
