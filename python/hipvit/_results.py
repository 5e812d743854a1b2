"""What the extension module returns and is made of in Python."""

from __future__ import annotations

from typing import Any, NamedTuple

from hipvit import _hipvit


class Prediction(NamedTuple):
    """One class and how likely it is."""

    index: int
    label: str
    logit: float
    probability: float


def load_again(options: dict[str, Any]) -> _hipvit.Model:
    """The model that was pickled, loaded with the same options."""
    return _hipvit.load(**options)
