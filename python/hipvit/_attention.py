"""``hipvit.attention``: attention with any mask and score."""

from __future__ import annotations

from typing import Any, Optional, Union

import numpy as np
import numpy.typing as npt

from hipvit import patterns
from hipvit._compiled_pattern import compiled
from hipvit._errors import ArgumentError
from hipvit.patterns import Expression, Function

__all__ = ["attention"]

_DTYPES = ("float32", "float16", "bfloat16")
_INT32 = np.iinfo(np.int32)


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    score: Union[Expression, Function, None] = None,
    mask: Union[Expression, Function, None] = None,
    scale: Optional[float] = None,
) -> Any:
    """``softmax(score where mask, −∞ elsewhere) · v``, fused, with the scores ``scale · q·k``.

    ``score`` and ``mask`` are expressions of ``hipvit.patterns``, or functions that return them:
    ``score(score, batch, head, query, key)`` and ``mask(batch, head, query, key)``, as FlexAttention calls them.

    - ``q``, ``k``, ``v``: ``[batch, heads, tokens, head_dim]``, float32, float16 or bfloat16. PyTorch's tensors on the CPU or on a GPU that
      hipvit drives, or arrays in host memory, such as NumPy's. The result is of their kind, with the dtype of ``q``.
    - ``scale``: ``1/√head_dim`` by default.

    A query that sees no key gets zeros. With PyTorch, gradients flow to ``q``, ``k``, ``v`` and captured floats, and ``torch.compile`` keeps
    the operator ``torch.ops.hipvit.attention``. The code for a GPU is compiled on first use.
    """
    pattern, captured, scalars = patterns._serialize(score, mask)
    _check(q, k, v)
    scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
    if hasattr(q, "requires_grad"):
        from hipvit import _torch_attention

        return _torch_attention.attention(q, k, v, captured, scalars, pattern, scale)
    q, k, v = (x if isinstance(x, np.ndarray) else np.from_dlpack(x) for x in (q, k, v))
    of_pattern = compiled(pattern)
    if q.size == 0 or k.size == 0:
        return np.zeros_like(q)
    operands = [np.ascontiguousarray(x.transpose(0, 2, 1, 3), np.float32) for x in (q, k, v)]
    operands += [_captured(np.asarray(array)) for array in captured]
    (result,) = of_pattern.forward(scale, scalars, operands)
    return np.ascontiguousarray(result.transpose(0, 2, 1, 3)).astype(q.dtype, copy=False)


def _captured(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind == "f":
        return np.ascontiguousarray(array, np.float32)
    if array.dtype.itemsize > 2 and array.size and not _INT32.min <= array.min() <= array.max() <= _INT32.max:
        raise ArgumentError("attention: a captured tensor has integers of more than 32 bits")
    return np.ascontiguousarray(array, np.int32)


def _check(q: Any, k: Any, v: Any) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if len(x.shape) != 4:
            raise ArgumentError(f"attention: {name} has shape {_shape(x)}, expected [batch, heads, tokens, head_dim]")
        if x.dtype != q.dtype:
            raise ArgumentError(f"attention: {name} is {x.dtype}, and q is {q.dtype}. Convert them to one dtype")
        if (x.shape[0], x.shape[1], x.shape[3]) != (q.shape[0], q.shape[1], q.shape[3]):
            raise ArgumentError(
                f"attention: {name} has shape {_shape(x)}, and q {_shape(q)}: they differ in more than the number of tokens"
            )
    if v.shape[2] != k.shape[2]:
        raise ArgumentError(f"attention: v has shape {_shape(v)}, and k {_shape(k)}: they differ in the number of tokens")
    if str(q.dtype).rpartition(".")[2] not in _DTYPES:
        raise ArgumentError(f"attention: q is {q.dtype}, expected one of {', '.join(_DTYPES)}")


def _shape(x: Any) -> list[int]:
    return [int(extent) for extent in x.shape]
