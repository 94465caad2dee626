"""The Python environment that mmspec lives in: finding broken torch companions, and mending them."""

from mmspec.environment.faults import Fault, diagnose
from mmspec.environment.interpreter import Interpreter
from mmspec.environment.mend import Mending, apply, mend, unmend_shims
from mmspec.environment.shims import SHIMS, Shim

__all__ = ["SHIMS", "Fault", "Interpreter", "Mending", "Shim", "apply", "diagnose", "mend", "unmend_shims"]
