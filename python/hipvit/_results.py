"""What the extension module returns and is made of in Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hipvit import _hipvit


@dataclass(frozen=True)
class Prediction:
    """One class and how likely it is."""

    index: int
    label: str
    logit: float
    probability: float


def load_again(options: dict[str, Any]) -> _hipvit.Model:
    """The model that was pickled, loaded with the same options."""
    return _hipvit.load(**options)
