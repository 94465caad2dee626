"""Which token a draft is given behind a prefill chunk; a real engine is in `tests/engine/test_draft_positions.py`."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mmspec.patches.chunk_token import NEXT_PROMPT_TOKEN

SCHEDULED = SimpleNamespace(num_scheduled_tokens={"chunk": 4, "decoding": 1})


def runner(*, configured: bool = True) -> Any:
    """A prompt of 20 tokens of which 3 + 4 are read, and a request that decodes behind 9 tokens."""
    return SimpleNamespace(
        vllm_config=SimpleNamespace(additional_config={"mmspec": {}} if configured else {}),
        discard_request_mask=SimpleNamespace(np=np.array([True, False, True])),
        input_batch=SimpleNamespace(
            num_reqs=2,
            req_ids=["chunk", "decoding"],
            num_computed_tokens_cpu=np.array([3, 9, 5]),
            num_tokens_no_spec=np.array([20, 10, 7]),
        ),
    )


def test_the_known_tokens_end_behind_the_chunk_while_drafting() -> None:
    seen = []
    propose = NEXT_PROMPT_TOKEN.wrap(
        lambda self, *_: seen.append(self.input_batch.num_tokens_no_spec.tolist())
    )
    drafting = runner()

    propose(drafting, SCHEDULED, None)

    assert seen == [[3 + 4 + 1, 10, 7]]  # vLLM reads the token before: index 7, the first behind the chunk
    assert drafting.input_batch.num_tokens_no_spec.tolist() == [20, 10, 7]


def test_lengths_are_put_back_when_drafting_fails() -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("drafting failed")

    drafting = runner()
    with pytest.raises(RuntimeError, match="drafting failed"):
        NEXT_PROMPT_TOKEN.wrap(fail)(drafting, SCHEDULED, None)

    assert drafting.input_batch.num_tokens_no_spec.tolist() == [20, 10, 7]


def test_an_unconfigured_engine_passes() -> None:
    propose = NEXT_PROMPT_TOKEN.wrap(lambda self, *_: self.input_batch.num_tokens_no_spec.tolist())

    assert propose(runner(configured=False), SCHEDULED, None) == [20, 10, 7]
