"""The input images that every golden case shares: synthetic, photograph-like, of awkward sizes.

See also: goldens.py, which calls `write_images` once and hands the paths to the cases.
"""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

# (file, width, height). Odd, tall, and wide-and-larger-than-the-model; the JPEG is 4:2:0 with odd sides, so its chroma
# planes end in half a block.
SIZES = {
    "small.png": (97, 61),
    "tall.png": (64, 200),
    "wide.png": (300, 224),
    "photo.jpg": (151, 113),
}


def synthesise(width: int, height: int, seed: int) -> Image.Image:
    """A smooth gradient, a few soft-edged shapes with highlights, and sensor-like noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    u, v = x / width, y / height
    planes = []
    for _ in range(3):
        a, b, c = rng.uniform(-90, 90, 3)
        wave = rng.uniform(15, 45) * np.sin(2 * np.pi * (rng.uniform(0.5, 2.5) * u + rng.uniform(0.5, 2.5) * v))
        planes.append(128 + a * (u - 0.5) + b * (v - 0.5) + c * (u - 0.5) * (v - 0.5) + wave)
    image = Image.fromarray(np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8))

    draw = ImageDraw.Draw(image)
    for index in range(7):
        cx, cy = rng.uniform(0, width), rng.uniform(0, height)
        rx, ry = rng.uniform(0.05, 0.3, 2) * min(width, height) * 1.2
        box = [cx - rx, cy - ry, cx + rx, cy + ry]
        colour = tuple(int(value) for value in rng.integers(0, 256, 3))
        (draw.ellipse if index % 2 else draw.rectangle)(box, fill=colour)
    # At saturated edges a filter with negative lobes overshoots and is clipped.
    draw.line([(0, height - 1), (width - 1, 0)], fill=(255, 255, 255), width=2)
    draw.line([(0, 0), (width - 1, height - 1)], fill=(0, 0, 0), width=1)

    image = image.filter(ImageFilter.GaussianBlur(0.6))
    pixels = np.asarray(image).astype(np.float64) + rng.normal(0, 5, (height, width, 3))
    return Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8))


def write_images(directory: Path) -> dict[str, Image.Image]:
    """Writes the images and returns them as read back, so that a JPEG's loss is part of the input."""
    directory.mkdir(parents=True, exist_ok=True)
    images = {}
    for seed, (name, (width, height)) in enumerate(SIZES.items()):
        image = synthesise(width, height, seed)
        if name.endswith(".jpg"):
            image.save(directory / name, quality=88, subsampling="4:2:0")
        else:
            image.save(directory / name, optimize=True)
        with Image.open(directory / name) as file:
            images[name] = file.convert("RGB")
    return images
