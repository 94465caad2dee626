"""Many sampled continuations of one prompt, as counts: `python -m tests.engine.draws MODEL` for a test to compare.

The prompt repeats a few tokens and only they may be said, so prompt lookup always finds something to draft, and the
next tokens have few outcomes.
"""

import json
import sys
from collections import Counter
from typing import Any

from tests.engine.in_process import running_engine
from tests.engine.runners import prepare_runner

ALLOWED = (21, 34, 47, 60)
PROMPT = [ALLOWED[i % 4] for i in (0, 1, 2, 3, 1, 0, 2, 2, 3, 0, 1, 3, 3, 2, 0, 0, 1, 1, 2, 3, 0, 1)]
TOKENS = 3
DRAFT = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_min": 1, "prompt_lookup_max": 2}


def draw(model: str, count: int, draft: dict[str, Any] | None) -> dict[str, Any]:
    """Counts of the continuations, and how many drafted tokens were accepted."""
    from vllm import SamplingParams

    sampling = SamplingParams(
        temperature=1.0, max_tokens=TOKENS, ignore_eos=True, allowed_token_ids=list(ALLOWED)
    )
    arguments: dict[str, Any] = {
        "max_num_seqs": 256,
        "enable_prefix_caching": False,
        "additional_config": {"mmspec": {}},
    }
    if draft:
        arguments |= {"speculative_config": draft, "per_request_spec_decode_metrics": "detailed"}
    with running_engine(model, **arguments) as llm:
        prompts = [{"prompt_token_ids": PROMPT}] * count
        outputs = [output.outputs[0] for output in llm.generate(prompts, sampling, use_tqdm=False)]
    said = Counter(" ".join(map(str, output.token_ids)) for output in outputs)
    metrics = [output.spec_decode_metrics for output in outputs if output.spec_decode_metrics]
    return {"said": said, "accepted": sum(sum(one.per_step_accepted) for one in metrics)}


def accept_everything() -> None:
    """Breaks the rule on purpose: no draw is ever above the acceptance probability."""
    import torch
    from vllm.v1.sample import rejection_sampler

    def zeros(num_tokens: int, *_: Any, device: Any = None, **__: Any) -> torch.Tensor:
        return torch.zeros(num_tokens, dtype=torch.float64, device=device)

    rejection_sampler.generate_uniform_probs = zeros


if __name__ == "__main__":
    prepare_runner("v1")
    model, count = sys.argv[1], int(sys.argv[2])
    results = {"direct": draw(model, count, None), "drafted": draw(model, count, DRAFT)}
    accept_everything()
    results["broken"] = draw(model, count, DRAFT)
    print(json.dumps(results))
