"""What capture asks of vLLM's workers besides states: the M-RoPE ids of a sequence, from the target itself."""

import pickle
from typing import Any

Request = tuple[list[int], list[Any]]
"""Token ids, and vLLM's `MultiModalFeatureSpec`s."""


class CaptureWorker:
    """Mixed into vLLM's worker class through `worker_extension_cls`; `pickled` comes from the same user's process."""

    model_runner: Any

    def capture_mrope_positions(self, pickled: bytes) -> bytes:
        """The ids of each request as the model runner gets them, [3, tokens], pickled as lists."""
        model = self.model_runner.get_model()
        requests: list[Request] = pickle.loads(pickled)
        found = [model.get_mrope_input_positions(tokens, features)[0] for tokens, features in requests]
        return pickle.dumps([positions.tolist() for positions in found])
