"""``hipvit.attention`` on PyTorch's tensors: the operators ``torch.ops.hipvit.attention`` and ``attention_backward``.

Their activations are ``[batch, tokens, heads, head_dim]``. On a GPU, they work on PyTorch's current stream.
"""

from __future__ import annotations

import inspect
from typing import Any, Optional

import torch

from hipvit._compiled_pattern import compiled
from hipvit._errors import ArgumentError

__all__ = ["attention"]

# Replays of CUDA graphs would use memory that hipvit gave to later work. Older versions of PyTorch cannot say so.
_HAS_TAG = hasattr(torch.Tag, "cudagraph_unsafe") and "tags" in inspect.signature(torch.library.custom_op).parameters
_OPTIONS: dict[str, Any] = {"tags": [torch.Tag.cudagraph_unsafe]} if _HAS_TAG else {}


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    captured: list[Any],
    scalars: list[float],
    pattern: str,
    scale: float,
) -> torch.Tensor:
    """Attention on tensors that are checked, but for their devices."""
    tensors = [x if isinstance(x, torch.Tensor) else torch.as_tensor(x, device=q.device) for x in captured]
    for x in (k, v, *tensors):
        if x.device != q.device:
            raise ArgumentError(f"attention: a tensor is on {x.device}, and q on {q.device}. Move them to one device")
    if q.device.type not in ("cpu", "cuda"):
        raise ArgumentError(f"attention: q is on {q.device}, expected the CPU or a GPU")
    if q.device.type != "cpu":
        tensors = [x.to(q.dtype) if x.dtype.is_floating_point else x for x in tensors]
    has_derivative = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, *tensors))
    operands = (q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), tensors)
    result, _ = torch.ops.hipvit.attention(*operands, scalars, pattern, scale, has_derivative)
    return result.transpose(1, 2)


@torch.library.custom_op(
    "hipvit::attention",
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v, Tensor[] captured, float[] scalars, str pattern, float scale, bool has_derivative)"
    " -> (Tensor, Tensor)",
    **_OPTIONS,
)
def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    captured: list[torch.Tensor],
    scalars: list[float],
    pattern: str,
    scale: float,
    has_derivative: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result, and ``ln Σ e^s`` ``[batch, heads, tokens]`` if the derivative needs it."""
    of_pattern = compiled(pattern)
    result, log_sum_exp = _results(q, has_derivative)
    if q.numel() == 0 or k.numel() == 0:
        return result.zero_(), log_sum_exp.fill_(-torch.inf)
    operands = [_activations(x) for x in (q, k, v)] + [_captured(x) for x in captured]
    if q.device.type != "cpu":
        results = [result, log_sum_exp] if has_derivative else [result]
        with torch.cuda.device_of(q):
            of_pattern.forward_on_gpu(scale, scalars, operands, results, _stream(q))
        return result, log_sum_exp
    arrays = [x.numpy() for x in operands]
    computed = of_pattern.forward(scale, scalars, arrays, has_derivative=has_derivative)
    attended, *sums = (torch.from_numpy(array) for array in computed)
    return attended.to(q.dtype), sums[0] if sums else log_sum_exp


@torch.library.custom_op(
    "hipvit::attention_backward",
    mutates_args=(),
    schema="(Tensor gradient, Tensor q, Tensor k, Tensor v, Tensor[] captured, bool[] wanted, Tensor result, Tensor log_sum_exp,"
    " float[] scalars, str pattern, float scale) -> Tensor[]",
    **_OPTIONS,
)
def backward(
    gradient: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    captured: list[torch.Tensor],
    wanted: list[bool],
    result: torch.Tensor,
    log_sum_exp: torch.Tensor,
    scalars: list[float],
    pattern: str,
    scale: float,
) -> list[torch.Tensor]:
    """Gradients of ``q``, ``k``, ``v`` and the ``wanted`` captured tensors."""
    of_pattern = compiled(pattern)
    gradients = _gradients(q, k, v, captured, wanted)
    if q.numel() == 0 or k.numel() == 0:
        return [x.zero_() for x in gradients]
    operands = [_activations(x) for x in (q, k, v)] + [_captured(x) for x in captured]
    operands += [_activations(result), log_sum_exp, _activations(gradient)]
    # The pattern has a gradient for each captured float.
    is_wanted = [True] * 3 + [wants for x, wants in zip(captured, wanted) if x.dtype.is_floating_point]
    if q.device.type != "cpu":
        left = iter(gradients)
        results = [next(left) if wants else None for wants in is_wanted]
        with torch.cuda.device_of(q):
            of_pattern.backward_on_gpu(scale, scalars, operands, results, _stream(q))
        return gradients
    computed = of_pattern.backward(scale, scalars, [x.numpy() for x in operands])
    arrays = [array for array, wants in zip(computed, is_wanted) if wants]
    return [torch.from_numpy(array).to(x.dtype) for array, x in zip(arrays, gradients)]


@forward.register_fake
def _(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    captured: list[torch.Tensor],
    scalars: list[float],
    pattern: str,
    scale: float,
    has_derivative: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    return _results(q, has_derivative)


@backward.register_fake
def _(
    gradient: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    captured: list[torch.Tensor],
    wanted: list[bool],
    result: torch.Tensor,
    log_sum_exp: torch.Tensor,
    scalars: list[float],
    pattern: str,
    scale: float,
) -> list[torch.Tensor]:
    return _gradients(q, k, v, captured, wanted)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    q, k, v, captured, ctx.scalars, ctx.pattern, ctx.scale, _ = inputs
    ctx.save_for_backward(q, k, v, *output, *captured)


def _backward(ctx: Any, gradient: torch.Tensor, _of_sums: Optional[torch.Tensor]) -> tuple[Any, ...]:
    q, k, v, result, log_sum_exp, *captured = ctx.saved_tensors
    wanted = list(ctx.needs_input_grad[3]) if captured else []
    arguments = (captured, wanted, result, log_sum_exp, ctx.scalars, ctx.pattern, ctx.scale)
    dq, dk, dv, *others = torch.ops.hipvit.attention_backward(gradient, q, k, v, *arguments)
    of_captured = [others.pop(0) if wants else None for wants in wanted]
    # PyTorch takes an empty list of numbers for a list of tensors.
    return dq, dk, dv, of_captured, None if ctx.scalars else [], None, None, None


forward.register_autograd(_backward, setup_context=_setup_context)


def _results(q: torch.Tensor, has_derivative: bool) -> tuple[torch.Tensor, torch.Tensor]:
    images, tokens, heads, _ = q.shape
    rows = (images, heads, tokens) if has_derivative else (0,)
    return torch.empty(q.shape, dtype=q.dtype, device=q.device), q.new_empty(rows, dtype=torch.float32)


def _gradients(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, captured: list[torch.Tensor], wanted: list[bool]
) -> list[torch.Tensor]:
    others = [x for x, wants in zip(captured, wanted) if wants]
    return [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v, *others)]


def _activations(x: torch.Tensor) -> torch.Tensor:
    """Row-major, aligned to vectors, and in float32 on the CPU."""
    x = (x.float() if x.device.type == "cpu" else x).contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()


def _captured(x: torch.Tensor) -> torch.Tensor:
    if x.dtype.is_floating_point:
        return _activations(x)
    if x.dtype == torch.int64 and x.device.type == "cpu" and x.numel() > 0:
        low, high = (int(bound) for bound in torch.aminmax(x))
        if not -(1 << 31) <= low <= high < 1 << 31:
            raise ArgumentError("attention: a captured tensor has integers of more than 32 bits")
    return x.to(torch.int32).contiguous()


def _stream(x: torch.Tensor) -> int:
    handle: int = torch.cuda.current_stream(x.device).cuda_stream
    return handle
