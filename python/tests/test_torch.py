"""The operator in PyTorch, eager and compiled, and tensors through DLPack. Skipped where torch is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN

import hipvit

torch: Any = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def values_model() -> hipvit.Model:
    return hipvit.load(GOLDEN / "timm_vit_class_token", "cpu", input="pixel_values")


@pytest.fixture(scope="module")
def values(vit: hipvit.Model, photo: Path) -> Any:
    return torch.from_numpy(vit.preprocess([photo, photo]))


def test_tensors_are_read_where_they_lie(vit: hipvit.Model, values_model: hipvit.Model, values: Any, photo: Path) -> None:
    expected = vit.run([photo, photo]).logits
    assert expected is not None
    got = values_model(values)
    np.testing.assert_allclose(got, expected, rtol=0, atol=4e-5 * np.abs(expected).max())
    pixels = torch.from_numpy(vit.preprocess([photo, photo], normalize=False))
    assert np.array_equal(vit(pixels, resize=False), expected)
    assert np.array_equal(values_model(values.clone().requires_grad_()), got)
    with pytest.raises(hipvit.ArgumentError, match="float32"):
        values_model(values.half())


def test_the_operator_passes_torchs_own_checks(values_model: hipvit.Model, values: Any) -> None:
    import hipvit.torch

    entry = hipvit.torch.register(values_model)
    for output in ("logits", "embeddings"):
        torch.library.opcheck(torch.ops.hipvit.forward.default, (values, entry.handle, output))


def test_a_compiled_program_calls_it(values_model: hipvit.Model, values: Any) -> None:
    import hipvit.torch

    class Program(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vit = hipvit.torch.Module(values_model)

        def forward(self, x: Any) -> Any:
            return self.vit(x * 1.0).softmax(-1)

    program = Program()
    expected = torch.from_numpy(values_model(values)).softmax(-1)
    assert torch.equal(program(values), expected)
    # Compile without a graph break. aot_eager needs no C++ compiler, and traces the fake implementation.
    compiled = torch.compile(program, backend="aot_eager", fullgraph=True, dynamic=True)
    assert torch.equal(compiled(values), expected)
    assert torch.equal(compiled(values[:1].repeat(3, 1, 1, 1)), expected[:1].repeat(3, 1))


def test_wrong_arguments(values_model: hipvit.Model, values: Any) -> None:
    import hipvit.torch

    module = hipvit.torch.Module(values_model)
    assert "timm_vit_class_token" in repr(module)
    with pytest.raises(hipvit.ArgumentError, match=r"\[B, 3, 48, 48\]"):
        module(values[..., :40])
    with pytest.raises(ValueError, match="no model has the handle"):
        torch.ops.hipvit.forward(values, 10**9, "logits")
    with pytest.raises(ValueError, match="not one of logits, embeddings"):
        hipvit.torch.Module(values_model, output="tokens")
    headless = hipvit.load(GOLDEN / "hf_vit_model", "cpu", input="pixel_values")
    with pytest.raises(ValueError, match="no classification head"):
        hipvit.torch.Module(headless)
