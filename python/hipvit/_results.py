"""Types that the extension module uses and returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from hipvit import _hipvit


@dataclass(frozen=True)
class Prediction:
    """A class and its probability."""

    index: int
    label: str
    logit: float
    probability: float


@dataclass(frozen=True)
class DeviceInfo:
    """A device that a model can run on."""

    device: str
    """What ``load`` calls it: ``cpu`` or ``hip:N``."""
    name: str
    """The product's name."""
    target: Optional[str]
    """The GPU's code target, such as ``gfx942``; ``None`` for the CPU."""
    memory: Optional[int]
    """The GPU's memory in bytes; ``None`` for the CPU."""


def load_again(options: dict[str, Any]) -> _hipvit.Model:
    """Load the pickled model with the same options."""
    return _hipvit.load(**options)
