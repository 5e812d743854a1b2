"""Draws scenes of handwritten digits that stand on a floor, with depths, masks and boxes, for `hipvit train`:

    python scripts/digit_scenes.py scenes

scenes/train and scenes/validation have images of 64×64 pixels and metadata.jsonl as ImageFolder of Hugging Face's datasets:

- depth_file_name: PNG of 16 bits with millimetres. The camera looks down on the floor, whose depth falls from 6.1 m in the first row to 2 m in
  the last. A digit has the depth of the place where it stands, and a height that is proportional to its inverse.
- mask_file_name: PNG of 8 bits with 1 for the pixels of the first object, 2 for those of the second, and 0 elsewhere.
- objects: `bbox` has left, top, width and height of the visible pixels of each object, `categories` its digit.

The digits are those of assets/digits/heldout.safetensors. No digit is in both parts. Needs NumPy and Pillow.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
NEAREST, FARTHEST = 2.0, 4.0  # metres, of digits
HEIGHT = 56.0  # of a digit at a depth of one metre, for images of 64 pixels
FLOOR, HORIZON = 184.0, 30.0  # depth is FLOOR / (row + HORIZON), for images of 64 pixels
LEAST_VISIBLE = 0.5  # share of an object's pixels
TRIES = 20
MILLIMETRES = 1000.0


def read_digits() -> tuple[np.ndarray, np.ndarray]:
    """Returns images `[n, 32, 32]` of white digits on black, and the digits."""
    data = (ROOT / "assets/digits/heldout.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])

    def tensor(name: str) -> np.ndarray:
        entry = header[name]
        dtype = {"U8": np.uint8, "I32": np.int32}[entry["dtype"]]
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        return np.frombuffer(data[start:end], dtype).reshape(entry["shape"])

    return tensor("images"), tensor("labels")


def draw_scene(size: int, most: int, pool: list[int], digits: tuple[np.ndarray, np.ndarray], source: np.random.Generator):
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
        index = int(source.choice(pool))
        glyph = Image.fromarray(images[index]).resize((side, side), Image.Resampling.BICUBIC)
        alpha = np.zeros((size, size))
        alpha[max(top, 0) : bottom, left : left + side] = np.asarray(glyph)[max(-top, 0) :] / 255
        inside = alpha >= 0.5
        in_front = metres < depth
        seen = np.where(inside & in_front, len(chosen) + 1, numbers)
        areas = [(np.count_nonzero(seen == number + 1), area) for number, (_, area) in enumerate([*chosen, (0, np.count_nonzero(inside))])]
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


def write_scenes(folder: Path, count: int, arguments: argparse.Namespace, pool: list[int], source: np.random.Generator) -> None:
    folder.mkdir(parents=True)
    digits = read_digits()
    with (folder / "metadata.jsonl").open("w") as out:
        for index in range(count):
            image, depth, numbers, classes = draw_scene(arguments.size, arguments.digits, pool, digits, source)
            files = {key: f"{index:05}{end}.png" for key, end in [("file_name", ""), ("depth_file_name", "_depth"), ("mask_file_name", "_mask")]}
            Image.fromarray(image).save(folder / files["file_name"])
            Image.fromarray(np.rint(depth * MILLIMETRES).astype(np.uint16)).save(folder / files["depth_file_name"])
            Image.fromarray(numbers).save(folder / files["mask_file_name"])
            objects = {"bbox": boxes(numbers, len(classes)), "categories": classes}
            out.write(json.dumps(files | {"objects": objects}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scenes", type=int, default=2000, help="training scenes")
    parser.add_argument("--validation", type=int, default=200)
    parser.add_argument("--size", type=int, default=64, help="pixels of a side")
    parser.add_argument("--digits", type=int, default=3, help="most digits of a scene")
    arguments = parser.parse_args()
    source = np.random.default_rng(7)
    order = source.permutation(len(read_digits()[1])).tolist()
    held_out = len(order) // 6
    write_scenes(arguments.folder / "train", arguments.scenes, arguments, order[held_out:], source)
    write_scenes(arguments.folder / "validation", arguments.validation, arguments, order[:held_out], source)
    print(f"{arguments.folder}: {arguments.scenes} training scenes, {arguments.validation} others")


if __name__ == "__main__":
    main()
