"""Models that onnx_zoo.py exports: the smallest architecture of each of timm's modules, and dense and dual encoders of transformers.

Weights are random, and every tensor matters: see `disturb`.
"""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import timm
import torch
from timm.models import _registry

from onnx_inputs import SEED, random_inputs

# Side of the images for architectures that take any size: small, so that a table of hundreds of models takes hours, not days.
SIDE = 128
# Standard deviation of a layer's outputs per that of its inputs, below which signals vanish with depth.
SMALLEST_GAIN = 0.7


@dataclass
class Case:
    """A model and the inputs that it is exported with. `inputs(batch)` returns tensors by the name of the argument."""

    name: str
    module: str
    model: torch.nn.Module
    inputs: Callable[[int], dict[str, torch.Tensor]]
    outputs: list[str] = field(default_factory=lambda: ["output"])


def timm_modules() -> list[str]:
    """Names of timm's modules that register architectures."""
    return sorted({_registry._model_to_module[name] for name in timm.list_models()})


def parameters(name: str) -> int | None:
    """Number of parameters of an architecture, without memory for them. `None` if it cannot be built so."""
    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in timm.create_model(name).parameters())
    except Exception:  # noqa: BLE001
        return None


def smallest(cache: Path) -> dict[str, str]:
    """The architecture of each module with the fewest parameters, timm's own `test_` models left out. Kept in `cache`."""
    if not cache.exists():
        rows = []
        for module in timm_modules():
            names = [name for name in timm.list_models(module=module) if not name.startswith("test_")]
            counts = [(count, name) for name in names if (count := parameters(name)) is not None]
            rows.append(f"{module}\t{min(counts)[1] if counts else names[0]}\n")
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text("".join(rows))
    return dict(line.split("\t") for line in cache.read_text().splitlines())


@torch.no_grad()
def disturb(model: torch.nn.Module, seed: str) -> None:
    """Makes every tensor matter: norms' scales and all biases are random, no weights are tiny."""
    generator = torch.Generator().manual_seed(zlib.crc32(seed.encode()))

    def normal(tensor):
        return torch.randn(tensor.shape, generator=generator).to(tensor.dtype)

    for name, parameter in model.named_parameters():
        if not parameter.is_floating_point():
            continue
        constant = parameter.numel() > 1 and bool((parameter == parameter.flatten()[0]).all())
        size = float(parameter.abs().max())
        if parameter.ndim <= 1 or constant or name.endswith((".gamma", ".alpha", ".beta", "layer_scale")):
            if "gamma" in name or "layer_scale" in name or "lambda" in name or 0 < size < 1e-2 and constant:
                parameter.copy_(0.3 + 0.2 * normal(parameter).abs())
            elif size > 0.5:
                parameter.mul_(1 + 0.1 * normal(parameter))
            else:
                parameter.copy_(0.1 * normal(parameter))
        elif size < 1e-4:
            parameter.copy_(0.05 * normal(parameter))
    for module in model.modules():
        if isinstance(module, (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d)) and module.weight.ndim > 1:
            gain = float(module.weight.std()) * math.prod(module.weight.shape[1:]) ** 0.5
            if 0 < gain < SMALLEST_GAIN:
                module.weight.mul_(SMALLEST_GAIN / gain)


@torch.no_grad()
def calibrate(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> None:
    """Sets the statistics of batch norms from a forward pass, so that activations neither vanish nor grow with depth."""
    norms = [module for module in model.modules() if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    kept = [norm.momentum for norm in norms]
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    model(*inputs.values())
    for norm, momentum in zip(norms, kept, strict=True):
        norm.eval()
        norm.momentum = momentum


def timm_case(name: str, images: int) -> Case:
    """A timm architecture at `SIDE` where its sizes are free, at its own image size otherwise. Batch norms' statistics are of `images`."""
    module = _registry._model_to_module[name]
    torch.manual_seed(SEED)
    model = timm.create_model(name).eval()
    config = model.pretrained_cfg
    own = config["input_size"]
    side = own[1]
    if not config.get("fixed_input_size", False):
        side = max(SIDE, *config.get("min_input_size", (3, 0, 0))[1:])
    disturb(model, name)
    if side != own[1]:
        try:
            with torch.no_grad():
                model(torch.zeros(1, own[0], side, side))
        except Exception:  # noqa: BLE001
            side = own[1]
    inputs = random_inputs({"input": (own[0], side, side)})
    calibrate(model, inputs(images))
    return Case(name, module, model, inputs)


class Selected(torch.nn.Module):
    """A model of transformers as a function of tensors that returns the named fields of its output."""

    def __init__(self, model: torch.nn.Module, outputs: list[str], inputs: list[str]):
        super().__init__()
        self.model, self.outputs, self.names = model, outputs, inputs

    def forward(self, *tensors):
        result = self.model(**dict(zip(self.names, tensors, strict=True)))
        picked = tuple(result[name] for name in self.outputs)
        return picked if len(picked) > 1 else picked[0]


def transformers_case(name: str) -> Case:
    """A model of transformers with random weights, by the table below."""
    import onnx_transformers

    torch.manual_seed(SEED)
    model, inputs, outputs = onnx_transformers.build(name)
    selected = Selected(model.eval(), outputs, list(inputs(1))).eval()
    disturb(selected, name)
    calibrate(selected, inputs(2))
    return Case(name, "transformers", selected, inputs, outputs)


def build(name: str, images: int = 2) -> Case:
    """The case of a timm architecture or, with the prefix `hf_`, of a model of transformers."""
    return transformers_case(name) if name.startswith("hf_") else timm_case(name, images)
