"""The files through which the engine's processes hand out what they computed; each exists only when it is whole."""

from pathlib import Path

SAVE = "mmspec_save_states"
"""Key of a request's `kv_transfer_params` that asks for the states of its prompt."""

STATES, TOKENS = "hidden_states", "token_ids"
"""Tensors of a file of states: [tokens, layers, hidden] and [tokens]."""

FEATURES = "features"
"""Tensor of a file of features: [visual tokens, width]; behind DeepStack a multiple of the hidden size."""


def feature_path(folder: Path, key: str) -> Path:
    """Where the features of the picture of this key are."""
    return folder / f"{key}.features"
