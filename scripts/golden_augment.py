"""Writes tests/golden/augment: digests of images that torchvision, timm and Pillow augmented, with the parameters of each draw.

    venv/bin/python scripts/golden_augment.py

Each file has 1,000 draws of one transform. Draw `n` transforms `image(n)`. Transforms draw with their library's own functions.
Operations with one parameter take it evenly spaced from the range in RANGES. `digests` has the CRC-32 of each result's bytes, six
characters of base64 each. The Rust test is crates/data/src/augment/golden.rs.
"""

import base64
import json
import math
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import timm.data.auto_augment as timm_augment
import timm.data.mixup as timm_mixup
import timm.data.random_erasing as timm_erasing
import torch
from PIL import Image
from torchvision import transforms
from torchvision.transforms import InterpolationMode, autoaugment
from torchvision.transforms import functional as F

DIRECTORY = Path(__file__).resolve().parent.parent / "tests" / "golden" / "augment"
DRAWS = 1000
MULTIPLIER, INCREMENT = 6_364_136_223_846_793_005, 1_442_695_040_888_963_407
INTERPOLATIONS = [InterpolationMode.NEAREST, InterpolationMode.BILINEAR, InterpolationMode.BICUBIC]
PIL_INTERPOLATIONS = [Image.Resampling.NEAREST, Image.Resampling.BILINEAR, Image.Resampling.BICUBIC]
FILL = (11, 128, 250)


def powers(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the factors and summands of the first `count` states of the congruential generator."""
    factors, summands = [], []
    factor, summand = 1, 0
    for _ in range(count):
        factor, summand = factor * MULTIPLIER % 2**64, (summand * MULTIPLIER + INCREMENT) % 2**64
        factors.append(factor)
        summands.append(summand)
    return np.array(factors, np.uint64), np.array(summands, np.uint64)


FACTORS, SUMMANDS = powers(48 * 48 * 3)


def array(n: int, width: int, height: int) -> np.ndarray:
    """Returns image `n`: noise, noise of low contrast, a gradient with noise, or four values per channel."""
    count = width * height * 3
    with np.errstate(over="ignore"):
        noise = ((FACTORS[:count] * np.uint64(n) + SUMMANDS[:count]) >> np.uint64(56)).astype(np.int64)
    at = np.arange(count)
    gradient = (at // 3 % width) * 5 + (at // 3 // width) * 3 + at % 3 * 40
    kinds = [noise, noise // 4 + 70, (gradient + noise // 16) % 256, noise // 64 * 64]
    return kinds[n % 4].astype(np.uint8).reshape(height, width, 3)


def size(n: int) -> tuple[int, int]:
    width, height = 16 + n * 7 % 33, 16 + n * 5 % 29
    return (width, width) if n % 10 == 0 else (width, height)


def image(n: int) -> Image.Image:
    return Image.fromarray(array(n, *size(n)))


def data(result: Image.Image | np.ndarray | torch.Tensor) -> bytes:
    return result.tobytes() if isinstance(result, Image.Image) else np.ascontiguousarray(result).tobytes()


def write(name: str, results: Iterator[tuple[list, bytes]]) -> None:
    draws, digests = [], []
    for parameters, result in results:
        draws.append(parameters)
        digests.append(base64.b64encode(zlib.crc32(result).to_bytes(4, "little")).decode()[:6])
    assert len(draws) == DRAWS, (name, len(draws))
    golden = {"draws": draws} if any(draws) else {}
    golden["digests"] = "".join(digests)
    (DIRECTORY / f"{name}.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


# Operations with at most one parameter: the parameter of draw n is LOW + (HIGH - LOW) × n / 999.
RANGES: dict[str, tuple[float, float, Callable[[Image.Image, float, int], Image.Image]]] = {
    "brightness": (0.0, 2.5, lambda im, x, _: F.adjust_brightness(im, x)),
    "contrast": (0.0, 2.5, lambda im, x, _: F.adjust_contrast(im, x)),
    "saturation": (0.0, 2.5, lambda im, x, _: F.adjust_saturation(im, x)),
    "sharpness": (0.0, 2.5, lambda im, x, _: F.adjust_sharpness(im, x)),
    "hue": (-0.5, 0.5, lambda im, x, _: F.adjust_hue(im, x)),
    "posterize": (1.0, 8.99, lambda im, x, _: F.posterize(im, int(x))),
    "solarize": (0.0, 256.0, lambda im, x, _: F.solarize(im, x)),
    "solarize_add": (0.0, 128.0, lambda im, x, _: timm_augment.solarize_add(im, int(x))),
    "invert": (0.0, 0.0, lambda im, *_: F.invert(im)),
    "equalize": (0.0, 0.0, lambda im, *_: F.equalize(im)),
    "autocontrast": (0.0, 0.0, lambda im, *_: F.autocontrast(im)),
    "horizontal_flip": (0.0, 0.0, lambda im, *_: F.hflip(im)),
    "vertical_flip": (0.0, 0.0, lambda im, *_: F.vflip(im)),
    "rotate": (-180.0, 180.0, lambda im, x, n: F.rotate(im, x, INTERPOLATIONS[n % 3], fill=FILL)),
    "right_angle": (0.0, 0.0, lambda im, _, n: F.rotate(im, n % 5 * 90 - 180, INTERPOLATIONS[n % 3], fill=FILL)),
    "shear": (-1.0, 1.0, lambda im, x, n: im.transform(im.size, Image.Transform.AFFINE, (1, x, n % 7, x / 3, 1, -x),
                                                       PIL_INTERPOLATIONS[n % 3], fillcolor=FILL)),
}


def operations(low: float, high: float, apply: Callable) -> Iterator[tuple[list, bytes]]:
    for n in range(DRAWS):
        yield [], data(apply(image(n), low + (high - low) * n / 999, n))


def random_resized_crop() -> Iterator[tuple[list, bytes]]:
    for n in range(DRAWS):
        picture = image(n)
        box = transforms.RandomResizedCrop.get_params(picture, [0.08, 1.0], [3 / 4, 4 / 3])
        yield list(box), data(F.resized_crop(picture, *box, [24, 20], INTERPOLATIONS[1 + n % 2]))


def random_crop() -> Iterator[tuple[list, bytes]]:
    modes = ["constant", "edge", "reflect", "symmetric"]
    for n in range(DRAWS):
        padded = F.pad(image(n), [3], FILL, modes[n // 4 % 4])
        box = transforms.RandomCrop.get_params(padded, (16, 15))
        yield list(box[:2]), data(F.crop(padded, *box))


def color_jitter() -> Iterator[tuple[list, bytes]]:
    functions = [F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue]
    jitter = transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)
    for n in range(DRAWS):
        order, *factors = jitter.get_params(jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue)
        factors = [round(factor, 3) for factor in factors]
        picture = image(n)
        for index in order:
            picture = functions[index](picture, factors[index])
        yield [*order.tolist(), *factors], data(picture)


def torchvision_policy(policy: torch.nn.Module, space: Callable) -> Iterator[tuple[list, bytes]]:
    """Records the choices of a policy: an operation's name, the bin of its magnitude, and 1 if it is negative."""
    apply, choices = autoaugment._apply_op, []

    def record(picture, name, magnitude, **options):
        magnitudes = space(picture.size[::-1])[name][0]
        chosen = int((magnitudes - abs(magnitude)).abs().argmin()) if magnitudes.ndim else 0
        choices.append([name, chosen, int(math.copysign(1.0, magnitude) < 0)])
        return apply(picture, name, magnitude, **options)

    autoaugment._apply_op = record
    for n in range(DRAWS):
        choices.clear()
        policy.interpolation = INTERPOLATIONS[n % 3]
        result = policy(image(n))
        yield [OPS.index(name) * 100 + chosen * 2 + sign for name, chosen, sign in choices], data(result)
    autoaugment._apply_op = apply


OPS = ["Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness",
       "Posterize", "Solarize", "AutoContrast", "Equalize", "Invert"]


def timm_policy(text: str) -> Iterator[tuple[list, bytes]]:
    """Records the choices of timm's RandAugment: an operation, its magnitude, and the sign and interpolation."""
    policy = timm_augment.rand_augment_transform(text, {"img_mean": FILL})
    names = timm_augment.rand_augment_choices("", increasing="inc1" in text)
    negate, interpolation = timm_augment._randomly_negate, timm_augment._interpolation
    choices: list = []

    def call(op, picture):
        if random.random() > op.prob:
            return picture
        magnitude = max(0.0, min(round(random.gauss(op.magnitude, op.magnitude_std), 3), op.magnitude_max or 10))
        choices.extend([names.index(op.name), magnitude, 0])
        arguments = op.level_fn(magnitude, op.hparams) if op.level_fn else ()
        return op.aug_fn(picture, *arguments, **op.kwargs)

    def record_sign(value):
        negated = negate(value)
        choices[-1] += int(negated != value)
        return negated

    def record_interpolation(options):
        chosen = interpolation(options)
        choices[-1] += 2 * (chosen == Image.Resampling.BICUBIC)
        return chosen

    timm_augment.AugmentOp.__call__ = call
    timm_augment._randomly_negate, timm_augment._interpolation = record_sign, record_interpolation
    n = 0
    while n < DRAWS:
        choices.clear()
        try:
            result = policy(image(n))
        except ValueError:  # Pillow refuses to keep no bits.
            continue
        yield list(choices), data(result)
        n += 1
    timm_augment._randomly_negate, timm_augment._interpolation = negate, interpolation


def mixup(mode: str) -> Iterator[tuple[list, bytes]]:
    """Mixes batches of four images of 9 × 7 pixels, and their targets of five classes."""
    boxes, weights = [], []
    box = timm_mixup.rand_bbox

    class Recorder(timm_mixup.FastCollateMixup):
        def _params_per_batch(self):
            weight, cut = super()._params_per_batch()
            weights.append(round(weight, 4))
            return weights[-1], cut

    def record(*arguments, **options):
        boxes.append([int(side) for side in box(*arguments, **options)])
        return boxes[-1]

    timm_mixup.rand_bbox = record
    for n in range(DRAWS):
        weights.clear()
        boxes.clear()
        images = [array(4 * n + k, 7, 9) for k in range(4)]
        batch = [(picture.transpose(2, 0, 1).copy(), k) for k, picture in enumerate(images)]
        mixed, targets = Recorder(0.8, 1.0, num_classes=5, mode=mode)(batch)
        mixer = timm_mixup.Mixup(0.8, 1.0, num_classes=5, mode=mode)
        mixer._params_per_batch = lambda: (weights[0], bool(boxes))
        timm_mixup.rand_bbox = lambda *_, **__: boxes[0]
        planes = torch.from_numpy(np.stack([picture for picture, _ in batch])).float()
        planes, _ = mixer(planes, torch.arange(4))
        timm_mixup.rand_bbox = record
        parts = [mixed.numpy().transpose(0, 2, 3, 1), planes.numpy(), targets.float().numpy()]
        yield [weights[0], *(boxes[0] if boxes else [])], b"".join(data(part) for part in parts)
    timm_mixup.rand_bbox = box


def random_erasing() -> Iterator[tuple[list, bytes]]:
    """Erases up to three rectangles of an image, as floats."""

    class Image3(torch.Tensor):
        def __setitem__(self, key, value):
            rows, columns = key[1:]
            rectangles.extend([rows.start, columns.start, rows.stop - rows.start, columns.stop - columns.start])
            super().__setitem__(key, value)

    erasing = timm_erasing.RandomErasing(0.8, max_count=3, device="cpu")
    for n in range(DRAWS):
        rectangles: list[int] = []
        planes = torch.from_numpy(array(n, *size(n)).transpose(2, 0, 1).copy()).float().as_subclass(Image3)
        yield rectangles, data(erasing(planes).as_subclass(torch.Tensor).numpy())


def main() -> None:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    for name, (low, high, apply) in RANGES.items():
        write(name, operations(low, high, apply))
    write("random_resized_crop", random_resized_crop())
    write("random_crop", random_crop())
    write("color_jitter", color_jitter())
    rand = autoaugment.RandAugment(fill=FILL)
    write("rand_augment", torchvision_policy(rand, lambda size: rand._augmentation_space(31, size)))
    wide = autoaugment.TrivialAugmentWide(fill=FILL)
    write("trivial_augment_wide", torchvision_policy(wide, lambda _: wide._augmentation_space(31)))
    auto = autoaugment.AutoAugment(fill=FILL)
    write("auto_augment", torchvision_policy(auto, lambda size: auto._augmentation_space(10, size)))
    write("timm_rand_augment", timm_policy("rand-m9-n2-mstd0.5"))
    write("timm_rand_augment_increasing", timm_policy("rand-m9-n3-mstd0.5-inc1"))
    write("mixup", mixup("batch"))
    write("random_erasing", random_erasing())


if __name__ == "__main__":
    main()
