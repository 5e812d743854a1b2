"""Writes processors.json: what each image processor class of transformers makes of each key of its configuration.

    python make_processors.py    (Pillow 13.0.0, numpy, torch, torchvision 0.29.2, transformers 5.23.0)

A case is keys that replace those of the class's `base`, and what follows: the CRC-32 of the float32 pixel_values of two
seeded noise images; "error" where transformers raises; "refused" where hipvit names the key in an error although transformers
goes on, because the result's size would depend on the image, or because the value is of a kind that is listed below. Images of DPT may have
different sizes.
"""

import json
import pathlib
import warnings
import zlib

import numpy as np
import transformers
from noise import noise
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

IMAGES = [noise(70, 50, 1), noise(33, 64, 2)]
SQUARE = {"size": {"height": 8, "width": 12}}
CROP = {"crop_size": {"height": 8, "width": 8}}
BASES = {
    "ViT": SQUARE,
    "DeiT": {"size": {"height": 10, "width": 12}, **CROP},
    "Bit": {"size": {"shortest_edge": 10}, **CROP},
    "CLIP": {"size": {"shortest_edge": 10}, **CROP},
    "Beit": SQUARE,
    "Siglip": SQUARE,
    "Siglip2": {"patch_size": 4, "max_num_patches": 9},
    "ConvNext": {"size": {"shortest_edge": 8}},
    "DPT": {"size": {"height": 24, "width": 20}, "keep_aspect_ratio": True, "ensure_multiple_of": 4},
}
FLAGS = ["do_resize", "do_rescale", "do_normalize", "do_center_crop", "do_pad"]
# A value of another kind as a flag is true or false by Python's rules, "false" is true.
FLAG_VALUES = [None, False, True, 0, 1]
ODD_FLAGS = ["false", "", [], {}]
NUMBERS = {
    "rescale_factor": [None, 0.01, 1, 0, -0.5, "1/255", True, [0.1]],
    "image_mean": [None, 0.25, 0, [0.1, 0.2], [0.1, 0.2, 0.3], [1, 0, 1], [], "0.5", ["0.1", "0.2", "0.3"], True],
    "image_std": [None, 0.25, -0.5, [0.1, 0.2, 0.3], [0.0, 0.5, 0.5], [0.1, None, 0.2]],
    "resample": [None, 0, 1, 2, 3, 4, 5, 6, -1, 2.0, "bilinear", True, [3]],
    "crop_pct": [None, 0.5, 1, 0, -1, "0.5"],
    "patch_size": [None, 2, 2.0, 0, {"height": 2, "width": 2}],
    "max_num_patches": [None, 4, 4.5, 0],
    "keep_aspect_ratio": [None, False, True, 0, 1],
    "ensure_multiple_of": [None, 1, 6, 7, 0, 2.5, "4"],
}
SIZES = [None, 9, 0, -3, [9], [9, 10], [9, 10, 3], 9.0, "9", True, {}, {"height": 9}, {"height": 9, "width": None},
         {"height": 9, "width": 10}, {"height": 9, "width": 10, "shortest_edge": None}, {"height": 9, "width": 10, "depth": 1},
         {"height": 9.0, "width": 10.0}, {"shortest_edge": 9}, {"shortest_edge": None}, {"shortest_edge": 9, "longest_edge": 11},
         {"shortest_edge": 9, "longest_edge": None}, {"longest_edge": 9}, {"max_height": 9, "max_width": 11},
         {"min_pixels": 9, "max_pixels": 90}]
CROPS = [None, 7, [7, 6], [7, 6, 3], {"height": 7, "width": 6}, {"shortest_edge": 7}, True]
SEVERAL = [
    *({"default_to_square": square, "size": 9} for square in (None, False, True, 0)), {"default_to_square": False},
    {"do_center_crop": True, "crop_size": {"height": 5, "width": 6}}, {"do_center_crop": True, "crop_size": 5},
    {"do_center_crop": None, "size": {"height": 8, "width": 9}}, {"do_resize": None, "size": None, "resample": None},
    {"do_rescale": None, "rescale_factor": None}, {"do_normalize": None, "image_mean": None, "image_std": None},
    {"do_rescale": False, "do_normalize": False}, {"do_resize": False, "do_center_crop": True, "crop_size": 9},
    {"do_pad": True, "pad_size": None}, {"do_pad": True, "pad_size": {"height": 30, "width": 30}}, {"do_pad": True, "pad_size": 8},
    {"do_pad": True, "pad_size": [8, 12]}, {"do_pad": True, "pad_size": 4}, {"do_pad": False, "pad_size": 30},
    {"use_square_size": True}, {"use_square_size": None},
    *({"do_pad": pad, "size_divisor": divisor} for pad, divisor in ((True, 2), (True, 32), (True, None), (False, 32))),
    *({"keep_aspect_ratio": False, "size": {"height": height, "width": 20}} for height in (21, 22, 23)),
]
# Keys without an effect on the pixel values of an RGB image, in these classes.
WITHOUT_EFFECT = {
    "do_convert_rgb": [None, False, True], "data_format": ["channels_last"], "input_data_format": ["channels_first"],
    "device": ["cuda"], "return_tensors": ["np"], "disable_grouping": [True], "image_seq_length": [5], "do_reduce_labels": [True],
    "reduce_labels": [True], "rescale_offset": [True], "do_flip_channel_order": [True], "do_thumbnail": [True],
    "do_align_long_axis": [True], "size_divisor": [32], "do_image_splitting": [True], "include_top": [True], "max_size": [20],
    "interpolation": ["nearest"], "antialias": [False], "mean": [[0, 0, 0]], "std": [[1, 1, 1]], "input_size": [[3, 9, 9]],
    "processor_class": ["CLIPProcessor"], "feature_extractor_type": ["DeiTFeatureExtractor"], "image_processor": [{"size": 9}],
    "_valid_processor_keys": [["images"]], "num_channels": [3], "auto_map": [{"AutoImageProcessor": "module.Class"}],
}
# Values that transformers goes on with, and hipvit does not.
REFUSED = [
    *(({flag: value}) for flag in FLAGS for value in ODD_FLAGS),
    *({"rescale_factor": value} for value in (True, [0.1])), *({"image_mean": value} for value in ("0.5", ["0.1", "0.2", "0.3"], True)),
    *({"image_std": value} for value in ([0.0, 0.5, 0.5], [0.1, None, 0.2])), *({"resample": value} for value in (6, 2.0, "bilinear", True)),
    {"size": True}, {"size": {"max_height": 9, "max_width": 11}}, {"crop_size": True}, {"max_num_patches": 0},
    {"do_pad": True, "pad_size": {"height": 30, "width": 30}}, {"do_pad": True, "pad_size": 8}, {"do_pad": True, "pad_size": [8, 12]},
    {"do_pad": True, "size_divisor": 32}, {"size": {"height": 9.0, "width": 10.0}},
]
# Halfway between multiples: a quotient's last bit, which depends on the image, decides.
HALFWAY = {"keep_aspect_ratio": False, "size": {"height": 22, "width": 20}}


def edits() -> list[dict]:
    single = [(flag, FLAG_VALUES + ODD_FLAGS) for flag in FLAGS]
    single += list(NUMBERS.items()) + [("size", SIZES), ("crop_size", CROPS)] + list(WITHOUT_EFFECT.items())
    return [{key: value} for key, values in single for value in values] + SEVERAL


def same(a: dict, b: dict) -> bool:
    """As JSON: 1 is not True."""
    return json.dumps(a) == json.dumps(b)


def result(processor_class: type, config: dict, base: int | None, edit: dict):
    is_dpt = hasattr(processor_class, "ensure_multiple_of")
    if is_dpt and (not config.get("do_resize", True) or config.get("do_center_crop")):
        # Images of their own sizes, and a crop that only another class of this name makes.
        return "refused"
    try:
        processor = processor_class.from_dict(config)
        values = [np.asarray(processor(image, return_tensors="np")["pixel_values"][0]) for image in IMAGES]
    except Exception:
        return "error"
    if values[0].shape != values[1].shape and not is_dpt:
        return "refused"
    crc = zlib.crc32(np.concatenate([value.astype("<f4").ravel() for value in values]).tobytes())
    # Where the class does not read the key, it passes. Some values change nothing and are refused all the same.
    read = crc != base or not {"size", "crop_size", "max_num_patches", "do_pad"} & edit.keys()
    read &= not (hasattr(processor, "max_num_patches") and "do_center_crop" in edit)
    refused = read and any(same(edit, other) for other in REFUSED)
    # This processor crops already.
    refused |= hasattr(processor, "crop_pct") and bool(edit.get("do_center_crop")) and config.get("do_resize", True)
    refused |= is_dpt and same(edit, HALFWAY)
    return "refused" if refused else crc


lines = []
for name, base in BASES.items():
    processor_class = Siglip2ImageProcessorPil if name == "Siglip2" else getattr(transformers, f"{name}ImageProcessorPil")
    unchanged = result(processor_class, base, None, {})
    assert isinstance(unchanged, int)
    cases = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for edit in edits():
            cases.append([edit, result(processor_class, base | edit, unchanged, edit)])
    text = ",\n".join(json.dumps(case) for case in cases)
    lines.append(f'{{"class": "{name}ImageProcessor", "base": {json.dumps(base)}, "crc32": {unchanged}, "cases": [\n{text}\n]}}')
pathlib.Path(__file__).with_name("processors.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
