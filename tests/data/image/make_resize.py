"""Writes resize.json: the CRC-32 of what Pillow's Image.resize makes of seeded noise.

    python make_resize.py        (Pillow 13.0.0, numpy)
"""

import json
import pathlib
import zlib

from PIL import Image
from noise import noise

FILTERS = ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
SIZES = [  # (input width, input height, output width, output height)
    (64, 48, 224, 224), (97, 61, 31, 17), (97, 61, 97, 20), (97, 61, 20, 61), (97, 61, 200, 33), (97, 61, 33, 200),
    (1, 1, 7, 5), (1, 300, 9, 9), (300, 1, 9, 9), (2, 3, 1, 1), (333, 250, 3, 2), (53, 47, 52, 48), (101, 99, 224, 219),
]

cases = []
for seed, (iw, ih, ow, oh) in enumerate(SIZES):
    image = noise(iw, ih, seed)
    for name in FILTERS:
        out = image.resize((ow, oh), Image.Resampling[name.upper()])
        cases.append({"seed": seed, "input": [iw, ih], "output": [ow, oh], "filter": name,
                      "crc32": zlib.crc32(out.tobytes())})
text = ",\n".join(json.dumps(case) for case in cases)
pathlib.Path(__file__).with_name("resize.json").write_text(f"[\n{text}\n]\n")
