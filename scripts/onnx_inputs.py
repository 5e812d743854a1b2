"""Random inputs of the models that onnx_zoo.py exports."""

from collections.abc import Callable

import torch

SEED = 40


def random_inputs(shapes: dict[str, tuple[int, ...]]) -> Callable[[int], dict[str, torch.Tensor]]:
    """Inputs that are normally distributed and do not depend on the batch: row n of a larger batch is row n of a smaller one."""

    def inputs(batch: int) -> dict[str, torch.Tensor]:
        generators = {name: torch.Generator().manual_seed(SEED) for name in shapes}
        return {
            name: torch.stack([torch.randn(shape, generator=generators[name]) for _ in range(batch)])
            for name, shape in shapes.items()
        }

    return inputs
