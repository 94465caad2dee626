"""The fingerprint of the weights that a worker has in memory, for engines whose weights no file tells."""

from typing import Any

from mmspec.encoders.cache.tensors import fingerprint


def tower_fingerprint(worker: Any) -> str | None:
    """Of a worker's share of everything but the language model; None where a kernel has taken weights away.

    vLLM's CPU build packs the weights of linear layers into a form of its own and leaves empty tensors behind. Runs in
    the worker, by `collective_rpc`.
    """
    model = worker.model_runner.get_model()
    language = {id(tensor) for tensor in model.get_language_model().state_dict().values()}
    tower = {name: tensor for name, tensor in model.state_dict().items() if id(tensor) not in language}
    if not tower or any(tensor.numel() == 0 for tensor in tower.values()):
        return None
    return fingerprint(tower.items())
