"""What ``hipvit.attention`` submits to a GPU, on another library's stream and in its memory. Skipped without a GPU; ci/python runs it
on an emulated one."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import byref, c_size_t, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from attention_cases import BIAS, DOCUMENTS, QKV
from test_device_tensors import FROM_DEVICE, HIP, OnDevice, check

import hipvit
from hipvit import patterns
from hipvit._compiled_pattern import compiled

_NO_WAIT = -1


class OnStream(OnDevice):
    """An array on GPU 0, of a library that works on the stream that it names."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        super().__init__(array)
        check(HIP.hipStreamSynchronize(self.stream))

    def __dlpack__(self, *, stream: Any = None) -> Any:
        assert stream == _NO_WAIT
        return ctypes.pythonapi.PyCapsule_New(ctypes.addressof(self.managed), b"dltensor", None)

    def numpy(self) -> npt.NDArray[Any]:
        assert self.memory.value is not None
        array = np.empty_like(self.array)
        source = c_void_p(self.memory.value + self.OFFSET)
        check(HIP.hipMemcpy(c_void_p(array.ctypes.data), source, c_size_t(array.nbytes), FROM_DEVICE))
        return array


@pytest.fixture(params=["a stream", "the default stream"])
def stream(request: pytest.FixtureRequest) -> Iterator[int]:
    handle = c_void_p()
    check(HIP.hipSetDevice(0))
    if request.param == "a stream":
        check(HIP.hipStreamCreate(byref(handle)))
    yield handle.value or 0


def finish(stream: int) -> None:
    check(HIP.hipStreamSynchronize(c_void_p(stream)))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_gpu_computes_what_the_cpu_does(dtype: Any, stream: int) -> None:
    cap = patterns.scalar(2.0)
    score = patterns.soft_cap(cap, patterns.bias(BIAS))
    json, _, _ = patterns._serialize(score, patterns.documents(DOCUMENTS) | patterns.prefix(1))
    pattern = compiled(json)
    host = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)).astype(dtype) for x in QKV]
    host += [BIAS.astype(dtype), DOCUMENTS.astype(np.int32)]
    gradient = np.random.default_rng(1).normal(size=host[0].shape).astype(dtype)
    for value, images in ((2.0, 2), (3.0, 2), (3.0, 1)):
        arrays = [*(x[:images] for x in host[:3]), *host[3:]]
        floats = [x if x.dtype == np.int32 else x.astype(np.float32) for x in arrays]
        expected = pattern.forward(0.3, [value], floats, has_derivative=True)
        gradients = pattern.backward(0.3, [value], [*floats, *expected, gradient[:images].astype(np.float32)])

        operands = [OnStream(x) for x in arrays]
        results = [OnStream(np.full_like(arrays[0], np.nan)), OnStream(np.full_like(expected[1], np.nan))]
        pattern.forward_on_gpu(0.3, [value], operands, results, stream)
        after = [*operands, *results, OnStream(gradient[:images])]
        of_floats = [OnStream(np.full_like(x, np.nan)) for x in arrays[:4]]
        pattern.backward_on_gpu(0.3, [value], after, of_floats, stream)
        again = [OnStream(np.full_like(x, np.nan)) for x in arrays[:3]]
        pattern.backward_on_gpu(0.3, [value], after, [*again, None], stream)
        alone = OnStream(np.full_like(arrays[0], np.nan))
        pattern.forward_on_gpu(0.3, [value], operands, [alone], stream)
        finish(stream)
        epsilon = float(np.finfo(dtype).eps)
        for got, array in zip([*results, *of_floats], [*expected, *gradients]):
            assert np.abs(got.numpy() - array).max() <= 32 * epsilon * max(1.0, float(np.abs(array).max()))
        assert np.array_equal(alone.numpy(), results[0].numpy())
        assert all(np.array_equal(x.numpy(), y.numpy()) for x, y in zip(again, of_floats))
        assert [x.given_back for x in operands] == [4] * 5 and results[0].given_back == 3


def test_wrong_tensors(stream: int) -> None:
    pattern = compiled(patterns._serialize(patterns.bias(BIAS), None)[0])
    arrays = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in QKV]
    result = OnStream(arrays[0])
    for captured, message in (
        (BIAS.astype(np.float16), "other dtypes than float32"),
        (BIAS[0], r"`score.bias`: has shape \[12, 12\]"),
    ):
        operands = [OnStream(x) for x in (*arrays, captured)]
        with pytest.raises(hipvit.ArgumentError, match=message):
            pattern.forward_on_gpu(0.3, [], operands, [result], stream)
        assert [x.given_back for x in operands] == [1] * 4
    operands = [OnStream(x) for x in (*arrays, BIAS)]
    with pytest.raises(hipvit.Error, match="outside every operand that may be written"):
        pattern.forward_on_gpu(0.3, [], operands, [OnStream(arrays[0][:, :5])], stream)
    with pytest.raises(hipvit.Error, match="are 2, expected 1|are 0, expected 1|log_sum_exp"):
        pattern.forward_on_gpu(0.3, [], operands, [], stream)
    operands[0].device = 7
    with pytest.raises(hipvit.Error):
        pattern.forward_on_gpu(0.3, [], operands, [result], stream)
