"""Formats of EAGLE-3 heads: reads speculators' and the older single-file kinds, writes speculators'."""

from mmspec.heads.formats.convert import convert_head, export_head
from mmspec.heads.formats.head import Head, HeadFormat, read_head

__all__ = ["Head", "HeadFormat", "convert_head", "export_head", "read_head"]
