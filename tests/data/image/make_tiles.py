"""Writes tiles.json: configurations of processors that divide images into tiles, and for each of some seeded noise images the rows and columns of its
tiles and the CRC-32 of their bytes, one tile after the other.

    python make_tiles.py    (Pillow 13.0.0, numpy, torch, torchvision 0.29.2, transformers 5.24.0)
"""

import json
import pathlib
import zlib

import numpy as np
from noise import noise
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

SIZES = [(64, 48), (48, 65), (301, 200), (150, 260), (225, 225), (20, 203), (16, 16), (97, 61), (7, 300)]
IMAGES = [noise(width, height, seed) for seed, (width, height) in enumerate(SIZES)]
CONFIGS = [
    {"size": {"longest_edge": 256}, "max_image_size": {"longest_edge": 64}},
    {"size": {"longest_edge": 100}, "max_image_size": {"longest_edge": 36}, "resample": 3},
    {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 64}},
    {"size": {"longest_edge": 90}, "max_image_size": {"longest_edge": 40}, "do_image_splitting": False},
    {"size": {"height": 70, "width": 50}, "max_image_size": {"longest_edge": 32}, "resample": 2},
]

cases = []
for index, config in enumerate(CONFIGS):
    kind = [SmolVLMImageProcessorPil, Idefics3ImageProcessorPil][index % 2]
    processor = kind(**config, do_rescale=False, do_normalize=False)
    images = []
    for image in IMAGES:
        made = processor([[image]], return_tensors="np", return_row_col_info=True)
        pixels = np.asarray(made["pixel_values"][0]).astype(np.uint8).transpose(0, 2, 3, 1)
        images.append([int(made["rows"][0][0]), int(made["cols"][0][0]), zlib.crc32(np.ascontiguousarray(pixels).tobytes())])
    cases.append({"config": {"image_processor_type": kind.__name__.removesuffix("Pil"), **config}, "images": images})
text = ",\n".join(json.dumps(case) for case in cases)
pathlib.Path(__file__).with_name("tiles.json").write_text(f'{{"sizes": {json.dumps(SIZES)},\n"cases": [\n{text}\n]}}\n')
