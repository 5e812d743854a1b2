"""The patterns of ``hipvit.attention`` that were checked, with their code."""

from __future__ import annotations

from functools import lru_cache

from hipvit._hipvit import AttentionPattern

__all__ = ["compiled"]


@lru_cache(maxsize=256)
def compiled(pattern: str) -> AttentionPattern:
    """The checked pattern, which keeps its code."""
    return AttentionPattern(pattern)
