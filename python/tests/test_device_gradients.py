"""Logits and gradients of ``hipvit.torch.TrainableModel`` on a GPU, from and to another library's memory. Skipped without a GPU; ci/python
runs it on an emulated one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import GOLDEN
from test_device_tensors import Imported, OnDevice, load

import hipvit
from hipvit._hipvit import Differentiable

NAME = "timm_vit_class_token"
IMAGES = 2


def weights_of(engine: Differentiable) -> list[npt.NDArray[np.float32]]:
    """The weights as ``TrainableModel`` composes them."""
    tensors = list(engine.tensors().values())
    weights = []
    for _, shape, parts in engine.weights:
        weight = np.zeros(int(np.prod(shape)), np.float32)
        for to, index, start, length in parts.tolist():
            tensor = tensors[index]
            assert tensor is not None
            weight[to : to + length] = tensor.reshape(-1)[start : start + length]
        weights.append(weight.reshape(shape))
    return weights


def arguments(engine: Differentiable) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(0)
    images = random.normal(size=(IMAGES, 3, *engine.image_size)).astype(np.float32)
    gradient = random.normal(size=(IMAGES, engine.num_classes)).astype(np.float32)
    return images, weights_of(engine), gradient


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_memory_of_the_gpu_gives_the_bits_of_memory_of_the_host(dtype: str) -> None:
    # Skips, or fails, without a GPU.
    load().close()
    engine = Differentiable(GOLDEN / NAME, device="hip", dtype=dtype)
    images, weights, gradient = arguments(engine)
    logits = engine.forward(images, weights)
    gradients = engine.backward(images, weights, gradient)
    on_gpu = OnDevice(images)
    tensors = [OnDevice(x.astype(kind)) for x, kind in zip(weights, engine.dtypes(False))]
    result = engine.forward(on_gpu, tensors)
    assert result.dtype == dtype and np.array_equal(Imported(result).numpy(), logits)
    kinds = engine.dtypes(True)
    tensors = [OnDevice(x.astype(kind)) for x, kind in zip(weights, kinds)]
    last = OnDevice(gradient.astype(kinds[-1]))
    results = engine.backward(on_gpu, tensors, last)
    assert len(results) == len(gradients)
    for (name, shape, _), tensor, expected in zip(engine.weights, results, gradients):
        imported = Imported(tensor)
        assert np.array_equal(imported.numpy().reshape(shape), expected), name
        imported.give_back()
    assert all(x.copied_to_host == 0 for x in (on_gpu, last, *tensors))
    with pytest.raises(hipvit.ArgumentError, match="expected"):
        engine.backward(on_gpu, tensors, OnDevice(gradient.astype("float16" if dtype == "float32" else "float32")))


def test_the_gpu_computes_what_the_cpu_does() -> None:
    load().close()
    gpu, cpu = (Differentiable(GOLDEN / NAME, device=device) for device in ("hip", "cpu"))
    images, weights, gradient = arguments(cpu)
    pairs = [(gpu.forward(images, weights), cpu.forward(images, weights))]
    pairs += zip(gpu.backward(images, weights, gradient), cpu.backward(images, weights, gradient))
    for ours, expected in pairs:
        # Two orders of summation in float32.
        assert np.abs(ours - expected).max() <= 1e-4 * (1.0 + np.abs(expected).max())
