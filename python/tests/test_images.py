"""Images in every form give the same bits."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import hipvit


class Exported:
    """A tensor of a library that numpy knows only by DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.array.__dlpack_device__()
        return device


class OnDevice(Exported):
    """One that is on a GPU until ``cpu`` copies it."""

    copies = 0

    def __dlpack_device__(self) -> tuple[int, int]:
        return (10, 0)

    def cpu(self) -> Exported:
        OnDevice.copies += 1
        return Exported(self.array)


def forms(path: Path) -> Iterator[tuple[str, Any]]:
    encoded = path.read_bytes()
    image = Image.open(path)
    pixels = np.array(image.convert("RGB"))
    yield "str", str(path)
    yield "path", path
    yield "bytes", encoded
    yield "bytearray", bytearray(encoded)
    yield "memoryview", memoryview(encoded)
    yield "pillow", image
    yield "pillow with alpha", image.convert("RGBA")
    yield "array", pixels
    yield "fortran order", np.asfortranarray(pixels)
    yield "read-only", np.frombuffer(pixels.tobytes(), np.uint8).reshape(pixels.shape)
    yield "strided", np.repeat(pixels, 2, axis=1)[:, ::2]
    yield "dlpack", Exported(pixels)
    yield "dlpack of a device", OnDevice(pixels)
    yield "batch", pixels[None]


def test_forms_are_equal(vit: hipvit.Model, photo: Path) -> None:
    expected = vit(photo)
    assert expected.shape == (1, 10)
    values = vit.preprocess(photo)
    for name, image in forms(photo):
        assert np.array_equal(vit(image), expected), name
        assert np.array_equal(vit([image]), expected), name
        assert np.array_equal(vit.preprocess(image), values), name
    assert OnDevice.copies == 3


def test_mixed_lists_and_iterators(vit: hipvit.Model, photo: Path) -> None:
    images = [image for _, image in forms(photo)]
    expected = np.repeat(vit(photo), len(images), axis=0)
    for sequence in (images, tuple(images), iter(images), (image for image in images)):
        got = vit(sequence)
        # Batches of one and of two images sum in a different order.
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * np.abs(expected).max())
    assert np.array_equal(vit(np.array([str(photo)] * 2)), vit(np.array([photo] * 2, dtype=object)))


def test_palette_and_grey_images_are_as_pillow_converts_them(vit: hipvit.Model, photo: Path) -> None:
    for mode in ("L", "P", "CMYK", "1", "I;16"):
        image = Image.open(photo).convert("L" if mode == "I;16" else mode)
        if mode == "I;16":
            image = Image.fromarray(np.array(image, dtype=np.uint16))
        assert np.array_equal(vit(image), vit(np.array(image.convert("RGB")))), mode


def test_no_image_is_no_row(vit: hipvit.Model) -> None:
    assert vit([]).shape == (0, 10)
    assert vit.embed([]).shape == (0, vit.num_features)
    assert vit.preprocess([]).shape == (0, 3, 48, 48)
    assert vit.top([]) == []


def test_arrays_of_the_models_size(vit: hipvit.Model, photo: Path) -> None:
    pixels = vit.preprocess([photo, photo], normalize=False)
    assert pixels.dtype == np.uint8 and pixels.shape == (2, 48, 48, 3)
    assert np.array_equal(vit(pixels, resize=False), vit([photo, photo]))
    assert np.array_equal(vit(Exported(pixels), resize=False), vit([photo, photo]))
    assert vit(pixels[0], resize=False).shape == (1, 10)
    with pytest.raises(hipvit.ArgumentError, match=r"the model takes \[B, 48, 48, 3\]"):
        vit(pixels[:, :40], resize=False)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((3, 48, 48), np.uint8), "channels are last"),
        (np.zeros((2, 3, 48, 48), np.uint8), "channels are last"),
        (np.zeros((48, 48), np.uint8), r"numpy\.stack"),
        (np.zeros((48, 48, 4), np.uint8), "alpha"),
        (np.zeros((48, 48, 3), np.float32), 'input="pixel_values"'),
        (np.zeros((0, 48, 3), np.uint8), "0 rows"),
    ],
)
def test_arrays_that_are_no_images(vit: hipvit.Model, image: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        vit(image)


@pytest.mark.parametrize("image", [7, None, [1.5], [["x"]], object()])
def test_objects_that_are_no_images(vit: hipvit.Model, image: Any) -> None:
    with pytest.raises(TypeError, match="is no image"):
        vit(image)


def test_pixel_values_have_to_be_float32(photo: Path) -> None:
    from conftest import GOLDEN

    model = hipvit.load(GOLDEN / "timm_vit_class_token", "cpu", input="pixel_values")
    values = hipvit.load(GOLDEN / "timm_vit_class_token", "cpu").preprocess(photo)
    assert model(values).shape == (1, 10)
    channels_last = np.ascontiguousarray(values.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    assert np.array_equal(model(channels_last), model(values))
    with pytest.raises(hipvit.ArgumentError, match="expected float32"):
        model(values.astype(np.float64))
    with pytest.raises(hipvit.ArgumentError, match=r"\[B, 3, 48, 48\]"):
        model(values[:, :, :40])
    with pytest.raises(TypeError, match="neither an array nor a tensor"):
        model(str(photo))


def test_streams_of_files_are_bytes(vit: hipvit.Model, photo: Path) -> None:
    assert np.array_equal(vit(io.BytesIO(photo.read_bytes()).getbuffer()), vit(photo))
