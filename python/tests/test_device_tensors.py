"""Tensors on the model's GPU are read where they lie. The tensors are not another library's: this file allocates them through the same
HIP runtime, and exports them as DLPack has it. Skipped without a GPU; ci/python runs it on an emulated one."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any, Optional

import numpy as np
import numpy.typing as npt
import pytest
from conftest import GOLDEN

import hipvit

PROVIDER = os.environ.get("HIPVIT_PROVIDER")
if PROVIDER is None:
    pytest.skip("HIPVIT_PROVIDER names no HIP runtime", allow_module_level=True)
HIP = ctypes.CDLL(PROVIDER)

ROCM = 10
TO_DEVICE, WITHIN_DEVICE = 1, 3
CODES = {np.dtype(np.uint8): (1, 8), np.dtype(np.float32): (2, 32), np.dtype(np.float64): (2, 64)}


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


Deleter = ctypes.CFUNCTYPE(None, c_void_p)


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", c_void_p), ("deleter", Deleter)]


def check(status: int) -> None:
    assert status == 0, f"HIP status {status}"


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [c_void_p, ctypes.c_char_p, c_void_p]
NAME = b"dltensor"


class OnDevice:
    """An array on GPU 0, written by a stream that has not ended when it is exported."""

    OFFSET = 256

    def __init__(self, array: npt.NDArray[Any], device: int = 0, strides: Optional[list[int]] = None) -> None:
        self.array = np.ascontiguousarray(array)
        self.device = device
        self.streams: list[Any] = []
        self.given_back = 0
        self.copied_to_host = 0
        self.source, self.memory, self.stream = c_void_p(), c_void_p(), c_void_p()
        size = c_size_t(self.array.nbytes)
        check(HIP.hipSetDevice(0))
        check(HIP.hipStreamCreate(byref(self.stream)))
        check(HIP.hipMalloc(byref(self.memory), c_size_t(self.OFFSET + self.array.nbytes)))
        check(HIP.hipMalloc(byref(self.source), size))
        check(HIP.hipMemcpy(self.source, c_void_p(self.array.ctypes.data), size, TO_DEVICE))
        # What is read too early is neither the array nor zero.
        check(HIP.hipMemset(self.memory, 0x55, c_size_t(self.OFFSET + self.array.nbytes)))
        assert self.memory.value is not None
        check(
            HIP.hipMemcpyAsync(
                c_void_p(self.memory.value + self.OFFSET),
                self.source,
                size,
                WITHIN_DEVICE,
                self.stream,
            )
        )
        dims = c_int64 * self.array.ndim
        self.shape = dims(*self.array.shape)
        self.strides = dims(*strides) if strides else None
        self.managed = Managed()
        tensor = self.managed.tensor
        tensor.data, tensor.byte_offset = self.memory.value, self.OFFSET
        tensor.device_type, tensor.device_id, tensor.ndim = ROCM, device, self.array.ndim
        (tensor.code, tensor.bits), tensor.lanes = CODES[self.array.dtype], 1
        tensor.shape = self.shape
        if self.strides is not None:
            tensor.strides = self.strides
        self.managed.deleter = Deleter(self.give_back)

    def give_back(self, managed: Optional[int]) -> None:
        assert managed == ctypes.addressof(self.managed)
        self.given_back += 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return ROCM, self.device

    def __dlpack__(self, *, stream: Optional[int] = None) -> Any:
        # As the protocol has it: the consumer's stream waits for what writes the memory.
        assert isinstance(stream, int) and stream != 0
        self.streams.append(stream)
        event = c_void_p()
        check(HIP.hipEventCreate(byref(event)))
        check(HIP.hipEventRecord(event, self.stream))
        check(HIP.hipStreamWaitEvent(c_void_p(stream), event, c_int(0)))
        check(HIP.hipEventDestroy(event))
        return new_capsule(ctypes.addressof(self.managed), NAME, None)

    def cpu(self) -> npt.NDArray[Any]:
        self.copied_to_host += 1
        return self.array


def load(**options: Any) -> hipvit.Model:
    try:
        return hipvit.load(GOLDEN / "timm_vit_class_token", "hip", batch=2, **options)
    except hipvit.DeviceError as error:
        if os.environ.get("HIPVIT_REQUIRE_GPU"):
            raise
        pytest.skip(f"no GPU: {error}")


@pytest.fixture(scope="module")
def model() -> hipvit.Model:
    return load()


@pytest.fixture(scope="module")
def values_model() -> hipvit.Model:
    return load(input="pixel_values")


@pytest.fixture(scope="module")
def pixels(model: hipvit.Model) -> npt.NDArray[np.uint8]:
    height, width = model.image_size
    # Two batches and a part of one.
    return np.random.default_rng(0).integers(0, 256, (5, height, width, 3), dtype=np.uint8)


def test_pixels_on_the_gpu_give_the_bits_of_those_on_the_host(model: hipvit.Model, pixels: npt.NDArray[np.uint8]) -> None:
    expected = model.run(pixels, resize=False)
    tensor = OnDevice(pixels)
    for call in (1, 2):
        got = model.run(tensor, resize=False)
        assert np.array_equal(got.embeddings, expected.embeddings)
        assert got.logits is not None and expected.logits is not None
        assert np.array_equal(got.logits, expected.logits)
        assert (len(tensor.streams), tensor.given_back, tensor.copied_to_host) == (call, call, 0)
    assert expected.logits is not None
    assert np.array_equal(model(OnDevice(pixels[3]), resize=False)[0], expected.logits[3])


def test_pixel_values_on_the_gpu(values_model: hipvit.Model, model: hipvit.Model, pixels: npt.NDArray[np.uint8]) -> None:
    values = np.random.default_rng(1).normal(size=(3, 3, *model.image_size)).astype(np.float32)
    tensor = OnDevice(values, strides=[int(stride) // 4 for stride in values.strides])
    assert np.array_equal(values_model(tensor), values_model(values))
    assert (tensor.given_back, tensor.copied_to_host) == (1, 0)


def test_tensors_elsewhere_go_through_the_host(model: hipvit.Model, pixels: npt.NDArray[np.uint8]) -> None:
    expected = model(pixels, resize=False)
    tensor = OnDevice(pixels, device=7)
    assert np.array_equal(model(tensor, resize=False), expected)
    assert (len(tensor.streams), tensor.copied_to_host) == (0, 1)
    # Images of any size are resized from the host.
    tensor = OnDevice(pixels[:1])
    assert np.array_equal(model(tensor), model(pixels[:1]))
    assert tensor.copied_to_host == 1


def test_wrong_tensors_are_refused_and_given_back(model: hipvit.Model, pixels: npt.NDArray[np.uint8]) -> None:
    for tensor, message in (
        (OnDevice(pixels.astype(np.float32)), "float32.*expected uint8"),
        (OnDevice(pixels.astype(np.float64)), "neither uint8 nor float32"),
        (OnDevice(pixels[:, :40]), r"the model takes \[B, "),
        (OnDevice(pixels, strides=[1, 2, 3, 4]), "make it contiguous"),
    ):
        with pytest.raises(hipvit.ArgumentError, match=message):
            model(tensor, resize=False)
        assert (tensor.given_back, tensor.copied_to_host) == (1, 0)
    # And the model goes on.
    assert model(OnDevice(pixels), resize=False).shape[0] == len(pixels)
