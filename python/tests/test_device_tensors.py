"""Tensors on the model's GPU are read in place. The tensors are not another library's: this file allocates them through the same
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
TO_DEVICE, FROM_DEVICE, WITHIN_DEVICE = 1, 2, 3
CODES = {
    np.dtype(np.uint8): (1, 8),
    np.dtype(np.int32): (0, 32),
    np.dtype(np.float16): (2, 16),
    np.dtype(np.float32): (2, 32),
    np.dtype(np.float64): (2, 64),
}


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
        # A premature read gives neither the array nor zeros.
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
        # By the protocol, the consumer's stream waits for the work that writes the memory.
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
    # Two full batches and a partial one.
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
    # Images of any size are resized on the host.
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
    # The model still works afterwards.
    assert model(OnDevice(pixels), resize=False).shape[0] == len(pixels)


get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
get_pointer.restype = c_void_p
get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
set_name = ctypes.pythonapi.PyCapsule_SetName
set_name.restype = c_int
set_name.argtypes = [ctypes.py_object, ctypes.c_char_p]
TAKEN = b"used_dltensor"


class Imported:
    """A tensor of hipvit's as another library takes it over."""

    def __init__(self, tensor: hipvit.GpuTensor) -> None:
        capsule = tensor.__dlpack__(stream=2)
        self.managed = Managed.from_address(get_pointer(capsule, NAME))
        assert set_name(capsule, TAKEN) == 0
        self.tensor = self.managed.tensor
        axes = range(self.tensor.ndim)
        self.shape = tuple(self.tensor.shape[axis] for axis in axes)
        self.strides = tuple(self.tensor.strides[axis] for axis in axes)

    def numpy(self) -> npt.NDArray[Any]:
        """float32, from what may be a view."""
        code, bits = self.tensor.code, self.tensor.bits
        kinds: dict[tuple[int, int], Any] = {(2, 32): np.float32, (2, 16): np.float16, (4, 16): np.uint16}
        dtype = np.dtype(kinds[code, bits])
        elements = 1 + sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides))
        flat = np.empty(elements, dtype)
        check(HIP.hipDeviceSynchronize())
        source = c_void_p(self.tensor.data + self.tensor.byte_offset)
        check(HIP.hipMemcpy(c_void_p(flat.ctypes.data), source, c_size_t(flat.nbytes), FROM_DEVICE))
        bytes_each = [stride * dtype.itemsize for stride in self.strides]
        view = np.lib.stride_tricks.as_strided(flat, self.shape, bytes_each)
        if code == 4:
            return (view.astype(np.uint32) << 16).view(np.float32)
        return view.astype(np.float32)

    def give_back(self) -> None:
        Deleter(ctypes.cast(self.managed.deleter, c_void_p).value or 0)(ctypes.addressof(self.managed))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_results_stay_on_the_gpu(dtype: str, pixels: npt.NDArray[np.uint8]) -> None:
    model = load(dtype=dtype, tokens=True, hidden_layers=[0])
    assert model.dlpack_device == (ROCM, 0)
    expected = model.run(pixels, resize=False)
    # Replayed and checked, from the host and from the GPU; several batches, the last one smaller.
    for images in (pixels, OnDevice(pixels), pixels, pixels):
        got = model.run_on_gpu(images, resize=False)
        assert len(got) == len(pixels) and got.logits is not None
        assert got.tokens is not None and got.prefix_tokens is not None
        assert expected.logits is not None and expected.tokens is not None and expected.prefix_tokens is not None
        for tensor, array in (
            (got.logits, expected.logits),
            (got.embeddings, expected.embeddings),
            (got.tokens, expected.tokens),
            (got.prefix_tokens, expected.prefix_tokens),
            (got.hidden_layers[0], expected.hidden_layers[0]),
        ):
            assert tensor.shape == array.shape and tensor.dtype == dtype
            assert tensor.__dlpack_device__() == (ROCM, 0)
            imported = Imported(tensor)
            assert np.array_equal(imported.numpy(), array)
            imported.give_back()
    # Images that are decoded and resized.
    resized = model.run_on_gpu(list(pixels)).embeddings
    assert np.array_equal(Imported(resized).numpy(), model.embed(list(pixels)))


def test_exported_results_outlive_the_model(pixels: npt.NDArray[np.uint8]) -> None:
    model = load(tokens=True)
    expected = model.run(pixels, resize=False)
    got = model.run_on_gpu(pixels, resize=False)
    assert got.tokens is not None and expected.tokens is not None
    first, second = Imported(got.tokens), Imported(got.tokens)
    assert first.tensor.data == second.tensor.data
    # An unused capsule releases its tensor.
    del_me = got.tokens.__dlpack__()
    del del_me, got
    first.give_back()
    other = model.run_on_gpu(255 - pixels, resize=False)
    model.close()
    assert np.array_equal(second.numpy(), expected.tokens)
    second.give_back()
    assert len(other) == len(pixels)


def test_what_cannot_stay_on_a_gpu_is_an_error(model: hipvit.Model, pixels: npt.NDArray[np.uint8]) -> None:
    on_cpu = hipvit.load(GOLDEN / "timm_vit_class_token", "cpu")
    assert on_cpu.dlpack_device is None
    with pytest.raises(hipvit.ArgumentError, match="cpu"):
        on_cpu.run_on_gpu(pixels, resize=False)
    tensor = model.run_on_gpu(pixels, resize=False).embeddings
    for options in ({"copy": True}, {"dl_device": (1, 0)}):
        with pytest.raises(BufferError, match="not copied"):
            tensor.__dlpack__(**options)
    none = model.run_on_gpu(pixels[:0], resize=False)
    assert len(none) == 0 and none.embeddings.shape == (0, model.num_features)
    with pytest.raises(hipvit.ImageError):
        model.run_on_gpu([b"no image"])
