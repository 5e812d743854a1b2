"""Errors are exceptions of the classes that Python code expects, with the attributes to handle them."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from conftest import GOLDEN

import hipvit


def test_classes() -> None:
    pairs = {
        hipvit.ArgumentError: ValueError,
        hipvit.ConfigError: ValueError,
        hipvit.DeviceError: RuntimeError,
        hipvit.HubError: FileNotFoundError,
        hipvit.ImageError: ValueError,
        hipvit.InternalError: RuntimeError,
        hipvit.NotFoundError: FileNotFoundError,
        hipvit.OutOfMemoryError: MemoryError,
        hipvit.WeightsError: ValueError,
    }
    for ours, pythons in pairs.items():
        assert issubclass(ours, hipvit.Error) and issubclass(ours, pythons)


def test_models_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no such directory") as caught:
        hipvit.load(tmp_path / "absent" / "model", "cpu")
    assert isinstance(caught.value, hipvit.NotFoundError) and "absent" in str(caught.value.filename)
    with pytest.raises(hipvit.HubError, match="hipvit pull nobody/has-this-model"):
        hipvit.load("nobody/has-this-model", "cpu")
    with pytest.raises(hipvit.ConfigError, match=r"config\.json"):
        hipvit.load(tmp_path, "cpu")


def test_damaged_weights(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((GOLDEN / "timm_vit_class_token" / name).read_bytes())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(hipvit.WeightsError, match=r"model\.safetensors"):
        hipvit.load(tmp_path, "cpu")


@pytest.mark.parametrize("device", ["tpu", "hip:x", 7])
def test_devices_that_are_none(device: object) -> None:
    with pytest.raises(hipvit.ArgumentError, match="not one of auto, cpu, hip, hip:N"):
        hipvit.load(device=device)


def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(hipvit.DeviceError):
        hipvit.load(device="cuda:97")
    with pytest.raises(RuntimeError):
        hipvit.load(device="hip:97")


def test_other_arguments(seven: Path, digits: hipvit.Model) -> None:
    with pytest.raises(hipvit.ArgumentError, match="batch"):
        hipvit.load(device="cpu", batch=0)
    with pytest.raises(hipvit.ArgumentError, match="9 labels"):
        hipvit.load(device="cpu", labels=list("abcdefghi"))
    with pytest.raises(hipvit.ArgumentError, match="image_size"):
        hipvit.load(device="cpu", image_size="large")  # type: ignore[arg-type]
    with pytest.raises(hipvit.ArgumentError, match="pixel_values"):
        hipvit.load(device="cpu", input="floats")  # type: ignore[arg-type]
    with pytest.raises(hipvit.ArgumentError, match="on_error"):
        digits.run(seven, on_error="ignore")  # type: ignore[call-overload]
    with pytest.raises(hipvit.ArgumentError, match="tokens=True"):
        digits.tokens(seven)
    with pytest.raises(TypeError, match="str"):
        hipvit.load(device="cpu", labels=[1, 2])  # type: ignore[list-item]


def test_images_that_fail(digits: hipvit.Model, seven: Path, tmp_path: Path) -> None:
    encoded = seven.read_bytes()
    with pytest.raises(hipvit.ImageError, match="image 0") as caught:
        digits(b"no image at all")
    assert (caught.value.kind, caught.value.name, caught.value.index) == ("unsupported", "image 0", 0)
    truncated = tmp_path / "truncated.png"
    truncated.write_bytes(encoded[:-200])
    with pytest.raises(hipvit.ImageError, match=r"truncated\.png") as caught:
        digits([seven, truncated])
    assert (caught.value.kind, caught.value.index) == ("truncated", 1)
    with pytest.raises(hipvit.ImageError, match=r"truncated\.png"):
        digits.preprocess([seven, truncated])
    with pytest.raises(FileNotFoundError, match=r"absent\.png") as missing:
        digits([seven, seven, tmp_path / "absent.png"])
    assert isinstance(missing.value, hipvit.NotFoundError) and missing.value.index == 2
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.kind) == (hipvit.ImageError, str(caught.value), "truncated")


def test_images_that_fail_can_be_skipped(digits: hipvit.Model, seven: Path) -> None:
    outputs = digits.run([seven, b"", "absent.png", seven], on_error="skip")
    assert len(outputs) == 4 and list(outputs.errors) == [1, 2]
    assert isinstance(outputs.errors[1], hipvit.ImageError)
    assert isinstance(outputs.errors[2], hipvit.NotFoundError)
    assert outputs.logits is not None
    assert np.isnan(outputs.logits[1:3]).all() and np.isfinite(outputs.logits[[0, 3]]).all()
    assert [len(top) for top in outputs.top(2)] == [2, 0, 0, 2]
    assert repr(outputs) == "<hipvit.Outputs for 4 images, 2 failed>"
    (alone,) = digits.run(b"", on_error="skip").errors.values()
    assert alone.index == 0
