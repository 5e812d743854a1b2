"""Writes preprocess.json: configurations as timm and transformers write them, and for each of some seeded noise images
the CRC-32 of the float32 pixel_values that the library makes of it.

    python make_preprocess.py    (Pillow 13.0.0, numpy, torch, torchvision 0.29.2, timm 1.0.31, transformers 5.23.0)
"""

import json
import pathlib
import zlib

import numpy as np
import transformers
from noise import noise
from timm.data import create_transform, resolve_data_config

SIZES = [(64, 48), (48, 65), (301, 200), (150, 260), (225, 225), (20, 203), (16, 16), (224, 224), (97, 61)]
IMAGES = [noise(width, height, seed) for seed, (width, height) in enumerate(SIZES)]

CLIP = {"mean": [0.48145466, 0.4578275, 0.40821073], "std": [0.26862954, 0.26130258, 0.27577711]}
TIMM = [
    {"architecture": "vit_tiny_patch16_224"},
    {"input_size": [3, 224, 224], "interpolation": "bicubic", "crop_pct": 0.9, "crop_mode": "center",
     "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]},
    {"input_size": [3, 32, 32], "interpolation": "bilinear", "crop_pct": 1.0, "crop_mode": "center"},
    {"input_size": [3, 96, 96], "interpolation": "bicubic", "crop_pct": 1.0, "crop_mode": "squash", **CLIP},
    {"input_size": [3, 96, 96], "interpolation": "lanczos", "crop_pct": 0.95, "crop_mode": "squash"},
    {"input_size": [3, 96, 96], "interpolation": "bicubic", "crop_pct": 0.9, "crop_mode": "border", **CLIP},
    {"input_size": [3, 97, 95], "interpolation": "bilinear", "crop_pct": 1.0, "crop_mode": "border"},
    {"input_size": [3, 64, 128], "interpolation": "bicubic", "crop_pct": 0.875, "crop_mode": "center"},
    {"input_size": [3, 128, 64], "interpolation": "hamming", "crop_pct": 0.965, "crop_mode": "center"},
    {"input_size": [3, 63, 65], "interpolation": "box", "crop_pct": 0.9, "crop_mode": "squash"},
    {"input_size": [3, 56, 56], "interpolation": "nearest", "crop_pct": 0.71},
    {"input_size": [3, 70, 70], "test_input_size": [3, 98, 98], "test_crop_pct": 1.0, "crop_pct": 0.8},
]
HUGGING_FACE = [
    ("ViTImageProcessor", {}),
    ("ViTImageProcessor", {"size": 37, "resample": 3, "image_mean": [0.485, 0.456, 0.406],
                           "image_std": [0.229, 0.224, 0.225]}),
    ("ViTImageProcessor", {"size": {"height": 31, "width": 64}, "do_normalize": False}),
    ("ViTImageProcessor", {"size": {"height": 31, "width": 64}, "do_rescale": False, "resample": 1}),
    ("ViTImageProcessor", {"size": [64, 33], "rescale_factor": 0.00784313725490196, "image_mean": 0.25,
                           "image_std": 0.125}),
    ("DeiTImageProcessor", {}),
    ("DeiTImageProcessor", {"size": 81, "crop_size": 70, "resample": 2}),
    ("DeiTImageProcessor", {"size": 40, "crop_size": {"height": 55, "width": 34}}),
    ("DeiTImageProcessor", {"do_center_crop": False, "size": {"height": 60, "width": 61}, "resample": 0}),
    ("BitImageProcessor", {"crop_size": {"height": 98, "width": 98}, "size": {"shortest_edge": 112},
                           "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
                           "do_convert_rgb": True, "rescale_factor": 0.00392156862745098}),
    ("BitImageProcessor", {"do_resize": False, "crop_size": 77}),
    ("BitImageProcessor", {"size": {"shortest_edge": 60, "longest_edge": 90}, "crop_size": 55}),
    ("CLIPImageProcessor", {}),
    ("CLIPImageProcessor", {"size": 61, "crop_size": 60, "resample": 4}),
    ("CLIPImageProcessor", {"size": {"shortest_edge": 61}, "crop_size": {"height": 64, "width": 64}, "resample": 5}),
    ("SiglipImageProcessor", {}),
    ("SiglipImageProcessor", {"size": {"height": 96, "width": 96}, "resample": 2}),
    ("ConvNextImageProcessor", {"size": {"shortest_edge": 96}}),
    ("ConvNextImageProcessor", {"size": 100, "crop_pct": 0.95, "resample": 2}),
    ("DonutImageProcessor", {"size": {"height": 256, "width": 192}}),
    ("DonutImageProcessor", {"size": [48, 65], "do_align_long_axis": True, "resample": 3}),
    ("DonutImageProcessor", {"size": {"height": 61, "width": 98}, "do_align_long_axis": True, "image_mean": [0.485, 0.456, 0.406],
                             "image_std": [0.229, 0.224, 0.225]}),
    ("DonutImageProcessor", {"size": 55, "resample": 1, "do_normalize": False}),
]


def crc(values):
    values = np.ascontiguousarray(np.asarray(values, dtype=np.float32))
    return zlib.crc32(values.astype("<f4").tobytes())


cases = []
for cfg in TIMM:
    for test in (False, True) if "test_input_size" in cfg else (False,):
        config = resolve_data_config(pretrained_cfg=cfg, use_test_size=test)
        transform = create_transform(**config, is_training=False)
        values = [crc(transform(image).numpy()) for image in IMAGES]
        cases.append({"library": "timm", "config": cfg, "use_test_size": test, "crc32": values})
for name, config in HUGGING_FACE:
    processor = getattr(transformers, f"{name}Pil")(**config)
    values = [crc(processor(image, return_tensors="np")["pixel_values"][0]) for image in IMAGES]
    cases.append({"library": "transformers", "config": {"image_processor_type": name, **config}, "crc32": values})

text = ",\n".join(json.dumps(case) for case in cases)
pathlib.Path(__file__).with_name("preprocess.json").write_text(
    f'{{"sizes": {json.dumps(SIZES)},\n"cases": [\n{text}\n]}}\n')
