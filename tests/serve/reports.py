"""Statistics of requests that end in unusual ways, as JSON: `python -m tests.serve.reports MODEL`."""

import json
import os
import sys
from typing import Any

PICTURE_SIZE = (112, 84)


def reports(model: str) -> dict[str, Any]:
    """Runs one engine of `mmspec.LLM` in this process."""
    from PIL import Image
    from vllm import SamplingParams

    from mmspec import LLM, MmspecError

    llm = LLM(model, dtype="float32", max_num_seqs=4, kv_cache_memory_bytes=1 << 28)
    prompt = {
        "prompt": "<|vision_start|><|image_pad|><|vision_end|>abcd abcd abcd abcd",
        "multi_modal_data": {"image": Image.new("RGB", PICTURE_SIZE, "red")},
    }

    def ask(**sampling: Any) -> Any:
        sampling = {"temperature": 0, "max_tokens": 24, "ignore_eos": True, **sampling}
        (output,) = llm.generate([prompt], SamplingParams(**sampling), use_tqdm=False)
        return output

    whole = ask()
    stopped = ask(stop=[whole.outputs[0].text[12:14]])
    several = ask(n=2, temperature=1.0, seed=0)
    llm.enqueue([prompt], SamplingParams(max_tokens=4), use_tqdm=False)
    try:
        list(llm.stream_chat([{"role": "user", "content": "abcd"}], SamplingParams(max_tokens=4)))
        refusal = None
    except MmspecError as error:
        refusal = str(error)
    llm.close()
    llm.close()
    return {
        "whole": whole.mmspec.to_dict(),
        "stopped": stopped.mmspec.to_dict(),
        "stopped_early": len(stopped.outputs[0].token_ids) < len(whole.outputs[0].token_ids),
        "several": several.mmspec.to_dict(),
        "refusal": refusal,
    }


if __name__ == "__main__":
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps(reports(sys.argv[1])), file=results, flush=True)
