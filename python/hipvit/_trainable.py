"""``hipvit.torch.TrainableModel``: a model of hipvit whose parameters are PyTorch's."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any, Literal, Optional, Union

import numpy as np
import torch
from torch.autograd.function import once_differentiable
from torch.profiler import record_function

from hipvit._errors import ArgumentError
from hipvit._hipvit import Differentiable, new_model

__all__ = ["TrainableModel"]

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

# A weight with more parts than this is gathered by indices.
_MAX_PARTS = 64


class TrainableModel(torch.nn.Module):
    """A model as a module with parameters and gradients. hipvit computes both passes; PyTorch owns the parameters.

    >>> model = hipvit.torch.TrainableModel("path/to/model")
    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    >>> loss = torch.nn.functional.cross_entropy(model(pixel_values), labels)
    >>> loss.backward()
    >>> optimizer.step()
    >>> model.save("path/to/trained")

    - ``model``: a directory that timm or transformers wrote, or a name on the hub in the local cache. With ``classes`` (a number or
      names), the classifier is new unless the classes are the same, and ``model`` may also be a ``config.json`` or a timm architecture,
      which gets random weights from ``seed``.
    - ``device``, ``dtype``: as in ``hipvit.load``, for one device. On a GPU that PyTorch uses too, the parameters are created there,
      and tensors are exchanged without the host. Parameters stay in float32; ``dtype`` is that of activations and gradients.
    - ``input``: with ``"pixel_values"``, images are float ``[B, 3, H, W]``, normalised as the library's processor does. With
      ``"images"``, they are uint8 ``[B, H, W, 3]``, and the model normalises them.

    Parameters have the names of the checkpoint's tensors, so ``state_dict()`` is that of timm or transformers. Tensors without a
    gradient are buffers; their elements cannot change.

    The backward pass computes the forward pass again, as activation checkpointing does: between the passes, only images and
    parameters are kept. There is no gradient of the images, and no dropout. ``torch.profiler`` shows the ranges ``hipvit forward``
    and ``hipvit backward``.
    """

    def __init__(
        self,
        model: Union[str, PathLike[str]],
        *,
        classes: Union[int, Iterable[str], None] = None,
        seed: int = 0,
        device: Any = None,
        dtype: Any = None,
        input: Literal["pixel_values", "images"] = "pixel_values",
        image_size: Union[int, tuple[int, int], None] = None,
        threads: Optional[int] = None,
    ) -> None:
        super().__init__()
        options: dict[str, Any] = {"device": device, "dtype": dtype, "input": input, "threads": threads}
        if classes is None:
            self._engine = Differentiable(model, image_size=image_size, **options)
        else:
            names = [str(index) for index in range(classes)] if isinstance(classes, int) else list(classes)
            with tempfile.TemporaryDirectory() as directory:
                if image_size is not None and not isinstance(image_size, int):
                    raise ArgumentError("image_size: is one number for a model with new classes")
                new_model(model, directory, names, image_size, seed)
                self._engine = Differentiable(directory, **options)
        tensors = self._engine.tensors()
        self._frozen = self._engine.frozen
        names = list(tensors)
        self._places: dict[str, tuple[torch.nn.Module, str]] = {}
        for name, array in tensors.items():
            if array is not None:
                self._register(name, torch.from_numpy(array))
        self._weights = [_Weight(shape, parts, names, tensors) for _, shape, parts in self._engine.weights]
        self.register_load_state_dict_post_hook(_check_buffers)
        if torch.cuda.is_available() and self._engine.dlpack_device is not None:
            gpu = torch.empty(0, device=f"cuda:{self._engine.dlpack_device[1]}")
            if _is_on_gpu(gpu, self._engine):
                self.to(gpu.device)

    def forward(self, pixel_values: torch.Tensor, labels: Optional[torch.Tensor] = None) -> Any:
        """The logits, ``[B, classes]``. With ``labels``, a dict of their mean cross-entropy ``"loss"`` and the ``"logits"``."""
        if pixel_values.requires_grad:
            raise ArgumentError("pixel_values: require a gradient, which a TrainableModel does not compute")
        tensors = {name: getattr(module, last) for name, (module, last) in self._places.items()}
        weights = [weight(tensors) for weight in self._weights]
        logits = _apply(self._engine, pixel_values, weights)
        if labels is None:
            return logits
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    def save(self, directory: Union[str, PathLike[str]]) -> None:
        """Write the model to a directory, in the form of timm or transformers that it was read in. All parameters are in float32."""
        tensors = {
            name: getattr(module, last).detach().to("cpu", torch.float32).contiguous().numpy()
            for name, (module, last) in self._places.items()
            if name not in self._frozen
        }
        self._engine.save(directory, tensors)

    def extra_repr(self) -> str:
        return repr(self._engine)

    def _register(self, name: str, tensor: torch.Tensor) -> None:
        """Register a tensor in modules with the parts of its name."""
        *path, last = name.split(".")
        module: torch.nn.Module = self
        for part in path:
            if part not in module._modules:
                module.add_module(part, torch.nn.Module())
            module = module.get_submodule(part)
        if name in self._frozen:
            module.register_buffer(last, tensor)
        else:
            module.register_parameter(last, torch.nn.Parameter(tensor))
        self._places[name] = (module, last)


class _Weight:
    """Composes a weight of the engine from parts of the checkpoint's tensors, differentiably."""

    def __init__(self, shape: tuple[int, ...], parts: Any, names: Sequence[str], tensors: dict[str, Any]) -> None:
        self.shape = shape
        count = int(np.prod(shape))
        self.sources = [names[index] for index in dict.fromkeys(parts[:, 1].tolist())]
        self.parts: list[tuple[int, str, int, int]] = []
        self.index: Optional[torch.Tensor] = None
        self.is_whole = False
        if len(parts) <= _MAX_PARTS:
            self.parts = [(to, names[index], start, length) for to, index, start, length in parts.tolist()]
            self.is_whole = len(parts) == 1 and self.parts[0][3] == count == tensors[self.sources[0]].size
            return
        # Elements of all sources, of which the last one is zero.
        starts, end = {}, 0
        for name in self.sources:
            starts[name], end = end, end + tensors[name].size
        index = np.full(count, end)
        for to, tensor, start, length in parts.tolist():
            first = starts[names[tensor]] + start
            index[to : to + length] = np.arange(first, first + length)
        self.index = torch.from_numpy(index)

    def __call__(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        sources = {name: tensors[name].reshape(-1) for name in self.sources}
        first = sources[self.sources[0]]
        if self.is_whole:
            return first.reshape(self.shape)
        if self.index is not None:
            if self.index.device != first.device:
                self.index = self.index.to(first.device)
            return torch.cat([*sources.values(), first.new_zeros(1)])[self.index].reshape(self.shape)
        pieces, end = [], 0
        for to, name, start, length in self.parts:
            if to > end:
                pieces.append(first.new_zeros(to - end))
            pieces.append(sources[name][start : start + length])
            end = to + length
        count = int(np.prod(self.shape))
        if count > end:
            pieces.append(first.new_zeros(count - end))
        return torch.cat(pieces).reshape(self.shape)


class _Logits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, engine: Differentiable, images: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        ctx.engine = engine
        ctx.save_for_backward(images, *weights)
        with record_function("hipvit forward"):
            (logits,) = _run(engine, images, weights)
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        images, *weights = ctx.saved_tensors
        with record_function("hipvit backward"):
            gradients = _run(ctx.engine, images, weights, gradient)
        wanted = ctx.needs_input_grad[2:]
        return (
            None,
            None,
            *(
                computed.reshape(weight.shape).to(weight.dtype) if wants else None
                for computed, weight, wants in zip(gradients, weights, wanted)
            ),
        )


@torch.compiler.disable
def _apply(engine: Differentiable, images: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
    logits: torch.Tensor = _Logits.apply(engine, images, *weights)
    return logits


def _run(
    engine: Differentiable,
    images: torch.Tensor,
    weights: Sequence[torch.Tensor],
    gradient: Optional[torch.Tensor] = None,
) -> list[torch.Tensor]:
    """The logits in float32, or the gradients of the weights. They are on the device of the images."""
    operands = [*weights] if gradient is None else [*weights, gradient]
    images = images.float() if images.is_floating_point() else images
    if _is_on_gpu(images, engine):
        dtypes = engine.dtypes(gradient is not None)
        tensors = [_contiguous(x, images.device, _DTYPES[dtype]) for x, dtype in zip(operands, dtypes)]
        images = images.contiguous()
        if gradient is None:
            return [torch.from_dlpack(engine.forward(images, tensors)).float()]
        *tensors, last = tensors
        return [torch.from_dlpack(x) for x in engine.backward(images, tensors, last)]
    arrays = [_contiguous(x, "cpu", torch.float32).numpy() for x in operands]
    if gradient is None:
        return [torch.from_numpy(engine.forward(images, arrays)).to(images.device)]
    *arrays, array = arrays
    return [torch.from_numpy(x).to(images.device) for x in engine.backward(images, arrays, array)]


def _contiguous(x: torch.Tensor, device: Any, dtype: torch.dtype) -> torch.Tensor:
    return x.detach().to(device, dtype).contiguous()


def _is_on_gpu(x: torch.Tensor, engine: Differentiable) -> bool:
    return x.device.type != "cpu" and bool(x.__dlpack_device__() == engine.dlpack_device)


def _check_buffers(module: TrainableModel, _keys: Any) -> None:
    for name, array in module._engine.tensors().items():
        if name not in module._frozen or array is None:
            continue
        parent, last = module._places[name]
        if not torch.equal(getattr(parent, last).cpu(), torch.from_numpy(array)):
            message = f"state_dict: `{name}` differs, and cannot be loaded, because {module._frozen[name]}"
            raise ArgumentError(message)
