"""Times Pillow on the cases of resize.rs, on one thread: the best of many runs, in input megapixels a second.

    python benches/resize_peers.py    (Pillow, numpy)
"""

import time

import numpy as np
import PIL
from PIL import Image

CASES = [((4000, 3000), (224, 224)), ((640, 480), (330, 248)), ((500, 375), (298, 224)), ((64, 64), (224, 224))]

print(f"Pillow {PIL.__version__}")
for (width, height), size in CASES:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))
    for name in ("BILINEAR", "BICUBIC", "LANCZOS"):
        best, end = float("inf"), time.perf_counter() + 2
        while time.perf_counter() < end:
            start = time.perf_counter()
            image.resize(size, Image.Resampling[name])
            best = min(best, time.perf_counter() - start)
        megapixels = width * height / 1e6 / best
        print(f"{width}x{height} to {size[0]}x{size[1]} {name.lower():9} {best * 1e3:8.3f} ms {megapixels:7.0f} MP/s")
