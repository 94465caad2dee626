"""Start-up hook: lets a CUDA build of torchvision be imported beside a torch without CUDA.

`mmspec doctor --mend` copies this file into site-packages, where a `.pth` file imports it at every start of
Python. So it stands alone, imports nothing that Python has not loaded by then, and works only on torchvision.

torchvision's compiled operators cannot load without CUDA's libraries; it tolerates that, then registers fake
implementations of two operators that nobody declared, and dies: "operator torchvision::nms does not exist".
Declaring the two schemas is enough. mmspec and vLLM use torchvision's transforms only, never these operators.
"""

import sys

_OPERATORS = ("nms", "qnms")
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class TorchvisionSchemas:
    """A finder that finds nothing: it declares the schemas just before their module is sought."""

    # torchvision imports its compiled operators before this module, so it is known whether they loaded.
    needs_schemas = "torchvision._meta_registrations"

    def __init__(self) -> None:
        self._declarations: object = None  # they live as long as this object

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == self.needs_schemas and self._declarations is None:
            self._declare()

    def _declare(self) -> None:
        import torch

        extension = sys.modules.get("torchvision.extension")
        if torch.version.cuda is not None or extension is None or extension._has_ops():
            return
        library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in _OPERATORS:
            if not hasattr(torch.ops.torchvision, operator):
                library.define(operator + _SCHEMA)
        self._declarations = library


def install() -> None:
    """Puts the finder first in line, once."""
    if not any(type(finder).__name__ == TorchvisionSchemas.__name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, TorchvisionSchemas())
