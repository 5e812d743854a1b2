"""Types that the extension module uses and returns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
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
class Detection:
    """An object in an image."""

    index: int
    """Index of the class."""
    label: str
    """Name of the class."""
    score: float
    """Score of the class, from 0 to 1."""
    box: tuple[float, float, float, float]
    """Left, top, right and bottom in pixels. A box may extend beyond the image."""


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


@dataclass(frozen=True)
class TrainingResult:
    """A completed run of ``hipvit.train``. Figures are those of its last epoch, ``None`` if the run was complete before."""

    model: Path
    """Directory of the trained model."""
    epochs: int
    """Number of epochs."""
    steps: int
    """Number of steps."""
    skipped: int
    """Number of broken images that were skipped in all epochs."""
    loss: Optional[float]
    """Mean loss of the training images."""
    train_accuracy: Optional[float]
    """Share of the training images that were classified correctly, as augmented, or of the objects that were found with an intersection over union
    of at least 0.5. ``None`` for depths and masks."""
    val_loss: Optional[float]
    """Mean loss of the validation images. ``None`` without such images."""
    val_accuracy: Optional[float]
    """Share of the validation images that were classified correctly, δ1 of depths, share of correct pixels of masks, or mAP@0.5 of boxes. ``None`` without such
    images."""


def load_again(options: dict[str, Any]) -> _hipvit.Model:
    """Load the pickled model with the same options."""
    return _hipvit.load(**options)
