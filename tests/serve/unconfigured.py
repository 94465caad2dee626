"""Describes an engine that does not use mmspec, as JSON: `python -m tests.serve.unconfigured MODEL`.

The test runs it with the plugin and without and compares what it prints.
"""

import inspect
import json
import os
import re
import sys
from typing import Any

PICTURE_SIZE = (112, 84)
# Made anew for every engine.
_RANDOM = re.compile(r"instance_id='[^']*'|0x[0-9a-f]+|tcp://[^'\"]*|/tmp/[^'\", ]*")


def describe(model: str) -> dict[str, Any]:
    """Answers, configuration, classes in use, and every function of vLLM's engine with its code's place."""
    import vllm.v1.engine.async_llm  # of servers  # noqa: F401
    from PIL import Image
    from vllm import LLM, SamplingParams

    llm = LLM(
        model, dtype="float32", enforce_eager=True, max_num_seqs=2, kv_cache_memory_bytes=1 << 28, seed=0
    )
    prompt = {
        "prompt": "<|vision_start|><|image_pad|><|vision_end|>abcd abcd",
        "multi_modal_data": {"image": Image.new("RGB", PICTURE_SIZE, "red")},
    }
    outputs = llm.generate(
        [prompt], SamplingParams(temperature=0, max_tokens=16, ignore_eos=True), use_tqdm=False
    )
    core = llm.llm_engine.engine_core.engine_core
    runner = core.model_executor.driver_worker.worker.model_runner
    parts = [llm.llm_engine, core, core.scheduler, core.model_executor, runner, runner.model, llm.renderer]
    return {
        "token_ids": list(outputs[0].outputs[0].token_ids),
        "config": _RANDOM.sub("", repr(llm.llm_engine.vllm_config)),
        "config_hash": llm.llm_engine.vllm_config.compute_hash(),
        "classes": [f"{type(part).__module__}.{type(part).__qualname__}" for part in parts],
        "functions": functions(),
    }


def functions() -> dict[str, str]:
    """Where the code of each function and method in vLLM's loaded modules was written."""
    places: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        if name == "vllm" or name.startswith("vllm."):
            for owner in [module, *(item for item in vars(module).values() if inspect.isclass(item))]:
                place = name if owner is module else f"{owner.__module__}.{owner.__name__}"
                for key, value in list(vars(owner).items()):
                    # The code's own file: `functools.wraps` disguises everything else. Other attributes may be
                    # stand-ins for modules that are not installed.
                    plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
                    code = plain.__code__ if inspect.isfunction(plain) else None
                    if code is not None:
                        where = f"{code.co_filename}:{code.co_firstlineno}"
                        places[f"{place}.{key}"] = where
    return places


if __name__ == "__main__":
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps(describe(sys.argv[1])), file=results, flush=True)
