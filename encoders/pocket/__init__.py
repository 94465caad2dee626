"""The pocket VLM: a small Qwen2.5-VL that this project trained on pictures of emoji."""

from mmspec.encoders.pocket.checkpoint import build

__all__ = ["build"]
