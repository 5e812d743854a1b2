"""Writes captions of the digits that scripts/digits_folder.py has written, and a small CLIP model without weights, for `hipvit train`:

    python scripts/digits_folder.py digits
    python scripts/digits_pairs.py digits pairs

pairs/train.csv has a caption from one of several templates for each image, pairs/val.csv the first template for each held-out image.
pairs/model has the configuration of the model, and the tokenizer of tests/golden/zero_shot/hf_clip.
"""

import argparse
import csv
import json
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TEMPLATES = ["a photo of the digit {}", "the number {}", "a handwritten {}", "{}, written by hand"]
FILES = ["tokenizer.json", "preprocessor_config.json"]
CONTEXT = 24  # tokens, as many as the longest caption has and some more
SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "projection_dim": 64}


def write_list(file: Path, images: Path, templates: list[str]) -> int:
    rows = [(path, WORDS[int(path.parent.name)]) for path in sorted(images.glob("*/*.png"))]
    with file.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["filepath", "title"])
        for index, (path, word) in enumerate(rows):
            writer.writerow([path.resolve(), templates[index % len(templates)].format(word)])
    return len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("digits", type=Path)
    parser.add_argument("pairs", type=Path)
    arguments = parser.parse_args()
    model = arguments.pairs / "model"
    model.mkdir(parents=True, exist_ok=True)
    golden = ROOT / "tests/golden/zero_shot/hf_clip"
    for name in FILES:
        shutil.copy(golden / name, model / name)
    tokenizer = json.loads((golden / "tokenizer_config.json").read_text()) | {"model_max_length": CONTEXT}
    config = json.loads((golden / "config.json").read_text())
    config["vision_config"] |= SIZES | {"num_hidden_layers": 4, "patch_size": 4, "image_size": 32}
    config["text_config"] |= SIZES | {"num_hidden_layers": 2, "max_position_embeddings": CONTEXT}
    config["projection_dim"] = SIZES["projection_dim"]
    for name, content in [("config.json", config), ("tokenizer_config.json", tokenizer)]:
        (model / name).write_text(json.dumps(content, indent=2) + "\n")
    counts = [
        write_list(arguments.pairs / f"{split}.csv", arguments.digits / split, templates)
        for split, templates in [("train", TEMPLATES), ("val", TEMPLATES[:1])]
    ]
    print(f"{arguments.pairs}: {counts[0]} pairs in train.csv, {counts[1]} in val.csv")


if __name__ == "__main__":
    main()
