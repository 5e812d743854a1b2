"""Draws scenes of handwritten digits that stand on a floor, with depths, masks and boxes, and writes small models without weights, for
`hipvit train`:

    python scripts/digit_scenes.py scenes
    hipvit train scenes/data -m scenes/depth -o run --recipe scenes/recipe.toml

scenes/data/train and scenes/data/validation have images of 64×64 pixels and metadata.jsonl as ImageFolder of Hugging Face's datasets:

- depth_file_name: PNG of 16 bits with millimetres. The camera looks down on the floor, whose depth falls from 6.1 m in the first row to 2 m in
  the last. A digit has the depth of the place where it stands, and a height that is proportional to its inverse.
- mask_file_name: PNG of 8 bits with 1 for the pixels of the first object, 2 for those of the second, and 0 elsewhere.
- objects: `bbox` has left, top, width and height of the visible pixels of each object, `categories` its digit.

scenes/depth has the configuration of a metric Depth Anything model, scenes/masks that of a SAM model.

The digits are those of assets/digits/heldout.safetensors, or with --digits the 1,797 of scripts/digits_folder.py, which detectors need to learn
the classes. No digit is in both parts. Needs NumPy and Pillow.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from PIL import Image

from small_recipe import RECIPE

ROOT = Path(__file__).resolve().parent.parent
NEAREST, FARTHEST = 2.0, 4.0  # metres, of digits
HEIGHT = 56.0  # of a digit at a depth of one metre, for images of 64 pixels
FLOOR, HORIZON = 184.0, 30.0  # depth is FLOOR / (row + HORIZON), for images of 64 pixels
LEAST_VISIBLE = 0.5  # share of an object's pixels
TRIES = 20
MILLIMETRES = 1000.0
PATCH = 8
VIT = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "mlp_ratio": 2, "patch_size": PATCH}
NORMALISATION = {
    "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
}


def shipped_digits(source: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns images `[n, 32, 32]` of white digits on black, and the digits, of both parts."""
    data = (ROOT / "assets/digits/heldout.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])

    def tensor(name: str) -> np.ndarray:
        entry = header[name]
        dtype = {"U8": np.uint8, "I32": np.int32}[entry["dtype"]]
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        return np.frombuffer(data[start:end], dtype).reshape(entry["shape"])

    images, labels = tensor("images"), tensor("labels")
    order = source.permutation(len(labels))
    held_out = len(labels) // 6
    return [(images[part], labels[part]) for part in (order[held_out:], order[:held_out])]


def digits_of(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Returns the images of a part of scripts/digits_folder.py, and the digits."""
    files = sorted(folder.glob("*/*.png"))
    return np.stack([np.asarray(Image.open(file).convert("L")) for file in files]), np.array([int(file.parent.name) for file in files])


def draw_scene(size: int, most: int, digits: tuple[np.ndarray, np.ndarray], source: np.random.Generator) -> tuple:
    """Returns the image, the depths in metres, the numbers of the objects, and the digit of each."""
    images, labels = digits
    scale = size / 64
    rows = np.arange(size)[:, None] / scale
    depth = np.broadcast_to(FLOOR / (rows + HORIZON), (size, size)).copy()
    # Light falls with the distance, as in fog.
    ground = source.uniform(60, 110, 3)
    image = ground * (NEAREST / depth[..., None]) ** 0.5 + source.normal(0, 4, (size, size, 1))
    numbers = np.zeros((size, size), np.uint8)
    chosen = []
    wanted = int(source.integers(1, most + 1))
    for _ in range(TRIES):
        if len(chosen) == wanted:
            break
        metres = source.uniform(NEAREST, FARTHEST)
        side = round(HEIGHT / metres * scale)
        bottom = round((FLOOR / metres - HORIZON) * scale)
        left, top = int(source.integers(0, size - side + 1)), bottom - side
        index = int(source.integers(len(labels)))
        glyph = Image.fromarray(images[index]).resize((side, side), Image.Resampling.BICUBIC)
        alpha = np.zeros((size, size))
        alpha[max(top, 0) : bottom, left : left + side] = np.asarray(glyph)[max(-top, 0) :] / 255
        inside = alpha >= 0.5
        in_front = metres < depth
        seen = np.where(inside & in_front, len(chosen) + 1, numbers)
        whole = [*(area for _, area in chosen), np.count_nonzero(inside)]
        areas = [(np.count_nonzero(seen == number + 1), area) for number, area in enumerate(whole)]
        if any(visible < LEAST_VISIBLE * area for visible, area in areas):
            continue
        ink = source.uniform(130, 255, 3) * (NEAREST / metres) ** 0.5
        alpha = np.where(in_front, alpha, 0)[..., None]
        image = image * (1 - alpha) + ink * alpha
        numbers = seen.astype(np.uint8)
        depth = np.where(inside & in_front, metres, depth)
        chosen.append((int(labels[index]), areas[-1][1]))
    return np.clip(np.rint(image), 0, 255).astype(np.uint8), depth, numbers, [digit for digit, _ in chosen]


def boxes(numbers: np.ndarray, count: int) -> list[list[int]]:
    """Returns left, top, width and height of each object."""
    found = []
    for number in range(1, count + 1):
        rows, columns = np.nonzero(numbers == number)
        left, top = int(columns.min()), int(rows.min())
        found.append([left, top, int(columns.max()) + 1 - left, int(rows.max()) + 1 - top])
    return found


def write_scenes(folder: Path, count: int, arguments: argparse.Namespace, digits: tuple[np.ndarray, np.ndarray], source: np.random.Generator) -> None:
    folder.mkdir(parents=True)
    with (folder / "metadata.jsonl").open("w") as out:
        for index in range(count):
            image, depth, numbers, classes = draw_scene(arguments.size, arguments.objects, digits, source)
            ends = {"file_name": "", "depth_file_name": "_depth", "mask_file_name": "_mask"}
            files = {key: f"{index:05}{end}.png" for key, end in ends.items()}
            Image.fromarray(image).save(folder / files["file_name"])
            Image.fromarray(np.rint(depth * MILLIMETRES).astype(np.uint16)).save(folder / files["depth_file_name"])
            Image.fromarray(numbers).save(folder / files["mask_file_name"])
            objects = {"bbox": boxes(numbers, len(classes)), "categories": classes}
            out.write(json.dumps(files | {"objects": objects}) + "\n")


def write_json(file: Path, content: dict) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=2) + "\n")


def write_depth_model(folder: Path, size: int) -> None:
    """Writes the configuration of a Depth Anything model of transformers, and of its image processor."""
    backbone = VIT | {"model_type": "dinov2", "image_size": size, "out_indices": [1, 2, 3, 4], "layerscale_value": 1.0, "reshape_hidden_states": False}
    config = {
        "architectures": ["DepthAnythingForDepthEstimation"], "model_type": "depth_anything", "backbone_config": backbone, "patch_size": PATCH,
        "reassemble_hidden_size": VIT["hidden_size"], "neck_hidden_sizes": [16, 24, 32, 48], "fusion_hidden_size": 32, "head_hidden_size": 16,
        "depth_estimation_type": "metric", "max_depth": 10,
    }
    write_json(folder / "config.json", config)
    size = {"height": size, "width": size}
    resize = {"do_resize": True, "size": size, "keep_aspect_ratio": True, "ensure_multiple_of": PATCH, "resample": 3}
    write_json(folder / "preprocessor_config.json", {"image_processor_type": "DPTImageProcessor"} | resize | NORMALISATION)


def write_mask_model(folder: Path, size: int) -> None:
    """Writes the configuration of a SAM model of transformers, and of its image processor."""
    dim, patch = VIT["hidden_size"], PATCH // 2  # masks have the size of the image
    vision = VIT | {"mlp_ratio": 2.0, "patch_size": patch, "image_size": size, "window_size": 8, "global_attn_indexes": [1, 3]}
    vision |= {"output_channels": dim, "num_pos_feats": dim // 2, "use_rel_pos": False}  # the absolute positions are enough
    prompt = {"hidden_size": dim, "image_size": size, "patch_size": patch, "image_embedding_size": size // patch}
    decoder = {"hidden_size": dim, "mlp_dim": 2 * dim, "num_attention_heads": 4, "num_hidden_layers": 2, "iou_head_hidden_dim": dim}
    config = {
        "architectures": ["SamModel"], "model_type": "sam", "vision_config": vision, "prompt_encoder_config": prompt, "mask_decoder_config": decoder,
    }
    write_json(folder / "config.json", config)
    resize = {"do_resize": True, "size": {"longest_edge": size}, "resample": 2, "do_pad": True, "pad_size": {"height": size, "width": size}}
    write_json(folder / "preprocessor_config.json", {"image_processor_type": "SamImageProcessor"} | resize | NORMALISATION)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scenes", type=int, default=2000, help="training scenes")
    parser.add_argument("--validation", type=int, default=200)
    parser.add_argument("--size", type=int, default=64, help="pixels of a side")
    parser.add_argument("--objects", type=int, default=3, help="most digits of a scene")
    parser.add_argument("--digits", type=Path, help="the folder of scripts/digits_folder.py")
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    source = np.random.default_rng(7)
    data = arguments.folder / "data"
    parts = [digits_of(arguments.digits / part) for part in ("train", "val")] if arguments.digits else shipped_digits(source)
    for part, count, digits in zip(("train", "validation"), (arguments.scenes, arguments.validation), parts):
        write_scenes(data / part, count, arguments, digits, source)
    write_depth_model(arguments.folder / "depth", arguments.size)
    write_mask_model(arguments.folder / "masks", arguments.size)
    every = max(1, arguments.epochs // 5)
    (arguments.folder / "recipe.toml").write_text(RECIPE.format(clip_norm=1.0, lr="1e-3", epochs=arguments.epochs, every=every))
    print(f"{arguments.folder}: {arguments.scenes} training scenes, {arguments.validation} others")


if __name__ == "__main__":
    main()
