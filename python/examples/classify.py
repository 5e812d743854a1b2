"""Classify image files, as with timm.

python classify.py cat.jpg dog.jpg --model path/to/vit_base_patch16_224 --device hip --dtype bfloat16
"""

from __future__ import annotations

import argparse
import sys

import hipvit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("images", nargs="+")
    parser.add_argument("--model", help="a directory or a name on the hub; by default a classifier of digits")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--top", type=int, default=5)
    arguments = parser.parse_args()

    try:
        model = hipvit.load(arguments.model, device=arguments.device, dtype=arguments.dtype)
    except hipvit.Error as error:
        sys.exit(f"error: {error}")
    # Decoding, copies and computation overlap; an image that fails does not stop the others.
    outputs = model.run(arguments.images, on_error="skip")
    for index, (path, top) in enumerate(zip(arguments.images, outputs.top(arguments.top))):
        if index in outputs.errors:
            print(f"error: {outputs.errors[index]}", file=sys.stderr)
            continue
        print(path)
        for prediction in top:
            print(f"  {100 * prediction.probability:6.2f} %  {prediction.label}")
    return 1 if outputs.errors else 0


if __name__ == "__main__":
    sys.exit(main())
