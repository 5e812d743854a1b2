"""hipvit's models in PyTorch programs, also with ``torch.compile``.

>>> import hipvit.torch
>>> model = hipvit.torch.Module(hipvit.load("path/to/model", input="pixel_values"))
>>> logits = torch.compile(model)(pixel_values)

The operator is ``torch.ops.hipvit.forward(images, handle, output)``. It runs on the model's device.

- A tensor on the model's GPU is read there, after the work of PyTorch's current stream, and the result stays there.
- A tensor on another GPU is copied to the host, and the result is copied back to that GPU.

The result is complete when the operator returns. There is no gradient.

``TrainableModel`` has gradients: its parameters are PyTorch's, so that any training loop of PyTorch can drive it.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import torch

from hipvit._trainable import TrainableModel

if TYPE_CHECKING:
    from hipvit._hipvit import Model

__all__ = ["Module", "TrainableModel", "register"]

_OUTPUTS = ("logits", "embeddings")


class _Entry:
    """A registered model. The registry keeps it while a ``Module`` or the caller refers to it."""

    def __init__(self, model: Model, handle: int) -> None:
        self.model = model
        self.handle = handle
        self.columns = {"logits": model.num_classes, "embeddings": model.num_features}
        height, width = model.image_size
        values = model.input == "pixel_values"
        self.image = (3, height, width) if values else (height, width, 3)
        self.dtype = torch.float32 if values else torch.uint8


_registry: WeakValueDictionary[int, _Entry] = WeakValueDictionary()
_handles = itertools.count(1)
_lock = threading.Lock()


def register(model: Model) -> _Entry:
    """Register a model. The entry's ``handle`` is an argument of ``torch.ops.hipvit.forward``, valid while the entry exists."""
    with _lock:
        entry = _Entry(model, next(_handles))
        _registry[entry.handle] = entry
    return entry


def _entry(handle: int, output: str) -> _Entry:
    entry = _registry.get(handle)
    if entry is None:
        raise ValueError(f"hipvit::forward: no model has the handle {handle}; hipvit.torch.register gives one")
    if output not in _OUTPUTS:
        raise ValueError(f"hipvit::forward: output {output!r} is not one of {', '.join(_OUTPUTS)}")
    if entry.columns[output] == 0:
        raise ValueError(f"hipvit::forward: {entry.model.name} has no classification head; use output='embeddings'")
    return entry


@torch.library.custom_op("hipvit::forward", mutates_args=())
def forward(images: torch.Tensor, handle: int, output: str) -> torch.Tensor:
    """Logits or embeddings of float32 pixel values ``[B, 3, H, W]``, or of uint8 images ``[B, H, W, 3]`` of the model's size."""
    entry = _entry(handle, output)
    images = images.detach()
    if images.device.type != "cpu" and images.__dlpack_device__() == entry.model.dlpack_device:
        outputs = entry.model.run_on_gpu(images, resize=False)
        tensor = outputs.logits if output == "logits" else outputs.embeddings
        return torch.from_dlpack(tensor).to(torch.float32)
    results = entry.model.run(images, resize=False)
    rows = results.logits if output == "logits" else results.embeddings
    return torch.from_numpy(rows).to(images.device)


@forward.register_fake
def _(images: torch.Tensor, handle: int, output: str) -> torch.Tensor:
    entry = _entry(handle, output)
    torch._check(images.dim() == 4, lambda: f"images have {images.dim()} dimensions, expected 4")
    torch._check(images.dtype == entry.dtype, lambda: f"images are {images.dtype}, expected {entry.dtype}")
    torch._check(
        tuple(images.shape[1:]) == entry.image,
        lambda: f"images are {tuple(images.shape)}, expected (B, {', '.join(map(str, entry.image))})",
    )
    return images.new_empty((images.shape[0], entry.columns[output]), dtype=torch.float32)


class Module(torch.nn.Module):
    """A model as a module, without parameters of PyTorch and without gradient."""

    def __init__(self, model: Model, output: str = "logits") -> None:
        super().__init__()
        self._entry = register(model)
        self.handle = self._entry.handle
        self.output = output
        _entry(self.handle, output)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.hipvit.forward(images, self.handle, self.output)
        return result

    def extra_repr(self) -> str:
        return f"{self._entry.model!r}, output={self.output!r}"
