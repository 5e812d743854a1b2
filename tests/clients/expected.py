"""The output of `hipvit classify` and `hipvit embed` as arrays, and the checks that all clients share."""

import json
from pathlib import Path

import numpy as np


def read(folder):
    """The outputs by model and image: {model: {image: {"logits": array, "embedding": array}}}."""
    results = {}
    for path in sorted(Path(folder).glob("*.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            image = results.setdefault(path.stem, {}).setdefault(record["image"], {})
            for name in ("logits", "embedding"):
                if name in record:
                    # Shortest decimals of floats: through a double they are the same floats.
                    image[name] = np.array(record[name], dtype=np.float64).astype(np.float32)
            if "top" in record:
                image["top"] = record["top"]
    if not results:
        raise SystemExit(f"{folder} has no results")
    return results


def same_bits(got, wanted, what):
    got = np.asarray(got)
    if got.dtype != np.float32 or got.shape != wanted.shape or got.tobytes() != wanted.tobytes():
        raise SystemExit(f"{what}: {got.dtype}{list(got.shape)} differs from the command line's")


def outputs_of(result):
    """The names that a model has, of those that are compared."""
    return [name for name in ("logits", "embedding") if name in result]


def check_top(text, wanted, what):
    """`top` is probability:index:label."""
    probability, index, label = text.split(":", 2)
    same = np.float32(probability) == np.float32(wanted["probability"])
    if not same or int(index) != wanted["index"] or label != wanted["label"]:
        raise SystemExit(f"{what}: {text} is not {wanted}")
