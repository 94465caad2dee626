"""What every training here shares: a resumable loop, and Muon for CPUs."""

from mmspec.training.muon import Muon, muon_and_adamw
from mmspec.training.run import CHECKPOINT, Metrics, Run, Schedule, is_first_process

__all__ = ["CHECKPOINT", "Metrics", "Muon", "Run", "Schedule", "is_first_process", "muon_and_adamw"]
