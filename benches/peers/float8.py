"""Linear layers in FP8 by PyTorch's own GEMM, torch._scaled_mm, from the checkpoints that `hipvit quantize --to fp8` writes: the
same weights and the same scales, fixed before, for weights and activations."""

import torch
from torch import nn

LARGEST = torch.finfo(torch.float8_e4m3fn).max


class Float8Linear(nn.Module):
    """`x · weightᵀ + bias`, of E4M3 weights [N, K] and x rounded to E4M3; the result has x's dtype."""

    def __init__(self, outputs: int, inputs: int, bias: bool):
        super().__init__()
        self.in_features, self.out_features = inputs, outputs
        self.weight = nn.Parameter(torch.empty(outputs, inputs, dtype=torch.float8_e4m3fn), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None
        self.register_buffer("weight_scale", torch.empty(1))
        self.register_buffer("input_scale", torch.empty(1))

    def _apply(self, fn, recurse=True):
        weight, scales = self.weight.detach(), {name: getattr(self, name) for name in ("weight_scale", "input_scale")}
        super()._apply(fn, recurse)
        # Keep E4M3 and f32 in a module of any dtype.
        self.weight = nn.Parameter(weight.to(self.weight.device), requires_grad=False)
        for name, scale in scales.items():
            setattr(self, name, scale.to(self.weight.device))
        return self

    def forward(self, x):
        rows = x.reshape(-1, self.in_features)
        rows = (rows.float() * self.input_scale.reciprocal()).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
        if self.weight_scale.numel() > 1:
            scales = self.input_scale.expand(len(rows), 1).contiguous(), self.weight_scale.reshape(1, -1)
        else:
            # Inductor's templates take the scale of a whole tensor as a scalar.
            scales = self.input_scale.reshape(()), self.weight_scale.reshape(())
        # Sums stay in the matrix cores, as in hipvit; this matters only on Hopper.
        y = torch._scaled_mm(rows, self.weight.t(), *scales, bias=self.bias, out_dtype=x.dtype, use_fast_accum=x.is_cuda)
        return y.reshape(*x.shape[:-1], self.out_features)


def quantize(module: nn.Module, tensors: dict) -> None:
    """Replaces the layers of `module` whose scales are among a checkpoint's tensors."""
    for name in [name.removesuffix(".weight_scale") for name in tensors if name.endswith(".weight_scale")]:
        if f"{name}.input_scale" not in tensors:
            raise ValueError(f"{name}: its activations have no scale; calibrate when quantizing")
        if tensors[f"{name}.weight"].dtype != torch.float8_e4m3fn:
            raise ValueError(f"{name}: its weight is {tensors[f'{name}.weight'].dtype}, not E4M3")
        outputs, inputs = tensors[f"{name}.weight"].shape
        parent, _, child = name.rpartition(".")
        setattr(module.get_submodule(parent), child, Float8Linear(outputs, inputs, f"{name}.bias" in tensors))
