"""Does a head fit a target? Asked before an engine starts, of files alone: no weights are loaded."""

from mmspec.heads.check.mismatch import Mismatch
from mmspec.heads.check.run import check_head, check_head_alone, require_fit

__all__ = ["Mismatch", "check_head", "check_head_alone", "require_fit"]
