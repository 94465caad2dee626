"""From prompts with pictures to training data for EAGLE-3 heads, through the serving engine."""

from mmspec.heads.capture.dataset import CapturedDataset
from mmspec.heads.capture.manifest import Manifest
from mmspec.heads.capture.run import Summary, capture
from mmspec.heads.capture.settings import CaptureSettings, parse_size
from mmspec.heads.capture.target import CaptureTarget, describe_target, fingerprint

__all__ = [
    "CaptureSettings",
    "CaptureTarget",
    "CapturedDataset",
    "Manifest",
    "Summary",
    "capture",
    "describe_target",
    "fingerprint",
    "parse_size",
]
