"""A process that runs engine jobs for the tests: `python -m tests.engine.worker RUNNER`.

The model runner is chosen by settings that must hold before vLLM is imported, and the import takes long;
so there is one worker a runner, and it takes jobs as JSON lines until its standard input ends.
"""

import json
import os
import sys
import traceback
from itertools import islice
from pathlib import Path
from typing import Any

from mmspec.encoders.fastv.recording import Kept, record_kept
from tests.engine.encoder_runs import count_encoded, losing
from tests.engine.in_process import running_engine
from tests.engine.runners import prepare_runner
from tests.pictures import PICTURES


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    """Runs one job (`tests.engine.jobs.Job` as JSON) and returns an `Outcome` as JSON."""
    arguments = dict(job["engine"])
    if job["speculative"]:
        arguments["speculative_config"] = job["speculative"]
        arguments["per_request_spec_decode_metrics"] = "detailed"
    with losing(job["lost_loads"]), running_engine(job["model"], **arguments) as llm:
        encoded = count_encoded(llm)
        prompts = [_prompt(request) for request in job["requests"]]
        sampling = [_sampling(request, job["max_tokens"]) for request in job["requests"]]
        pairs = list(zip(prompts, sampling, strict=True))
        kept = (
            record_kept(llm)
            if "fastv" in job["engine"].get("additional_config", {}).get("mmspec", {})
            else {}
        )
        sizes = [1] * len(pairs) if job["one_by_one"] else job["batches"] or [len(pairs)]
        rest = iter(pairs)
        batches = [list(islice(rest, size)) for size in sizes]
        outputs = [output for batch in batches for output in _generate(llm, batch)]
        v2 = llm.llm_engine.vllm_config.use_v2_model_runner
        (compiled,) = llm.apply_model(_is_compiled)
        (tail_runs,) = llm.apply_model(_tail_runs)
    return {
        "runner": "v2" if v2 else "v1",
        "answers": [_answer(output, kept) for output in outputs],
        "error": None,
        "compiled": compiled,
        "encoded": sum(encoded),
        "tail_runs": tail_runs,
    }


def _is_compiled(model: Any) -> bool:
    parts = list(model.modules())
    return any(getattr(part, "compiled", False) or hasattr(part, "aot_compiled_fn") for part in parts)


def _tail_runs(model: Any) -> int:
    from mmspec.encoders.fastv.pruner import pruner_of

    pruner = pruner_of(model)
    return pruner.tail.runs if pruner and pruner.tail else 0


def _generate(llm: Any, batch: list[tuple[dict[str, Any], Any]]) -> list[Any]:
    prompts, sampling = map(list, zip(*batch, strict=True))
    outputs: list[Any] = llm.generate(prompts, sampling, use_tqdm=False)
    return outputs


def _sampling(request: dict[str, Any], max_tokens: int) -> Any:
    from vllm import SamplingParams

    arguments: dict[str, Any] = {} if request["keep"] is None else {"fastv_keep": request["keep"]}
    if not request["draft"]:
        arguments["mmspec_draft"] = False
    if request["tokens"]:
        arguments["mmspec_stats"] = "tokens"
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, extra_args=arguments or None)


def _prompt(request: dict[str, Any]) -> dict[str, Any]:
    prompt: dict[str, Any] = {"prompt": request["text"]}
    if request["images"]:
        prompt["multi_modal_data"] = {"image": [_open(name) for name in request["images"]]}
    return prompt


def _open(name: str) -> Any:
    if name in PICTURES:
        return PICTURES[name]()
    from PIL import Image

    return Image.open(Path(name))


def _answer(output: Any, kept: dict[str, Kept]) -> dict[str, Any]:
    completion = output.outputs[0]
    metrics = completion.spec_decode_metrics
    report = (output.ec_transfer_params or {}).get("mmspec", {})
    return {
        "prompt_token_ids": list(output.prompt_token_ids),
        "token_ids": list(completion.token_ids),
        "drafted": list(metrics.per_step_drafted) if metrics else [],
        "accepted": list(metrics.per_step_accepted) if metrics else [],
        "kept": kept[output.request_id].indices if output.request_id in kept else [],
        "encoder_cache": report.get("encoder_cache"),
        "steps": report.get("steps"),
    }


def _main() -> None:
    runner = sys.argv[1]
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever vLLM prints must not fall between the results
    prepare_runner(runner)
    for line in sys.stdin:
        try:
            outcome = run_job(json.loads(line))
        except Exception as error:
            traceback.print_exc()
            outcome = {"runner": runner, "answers": [], "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(outcome), file=results, flush=True)
    os._exit(0)  # vLLM's own exit handlers may wait for threads that never end


if __name__ == "__main__":
    _main()
