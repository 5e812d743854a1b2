"""What 2:4 sparsity costs: accuracy over Fashion-MNIST's test images, in full precision and as `hipvit quantize --sparse` writes it.

    venv/bin/python scripts/train_fashion_mnist.py DATA -o fashion     # it says where DATA is from
    venv/bin/python benches/accuracy_sparse.py fashion --hipvit target/release/hipvit --data DATA

Pruned by magnitude, with the correction (SparseGPT, from 256 training images), and fine-tuned (scripts/finetune_sparse.py), each
alone or in int8 too. Prints a table in Markdown. See also: accuracy_8bit.py.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from safetensors.numpy import load_file, save_file

FINETUNE = Path(__file__).resolve().parent.parent / "scripts" / "finetune_sparse.py"


def call(program: str, *arguments) -> dict:
    done = subprocess.run([program, *map(str, arguments), "--json"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"hipvit {arguments[0]}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("fashion", type=Path, help="what scripts/train_fashion_mnist.py wrote")
    parser.add_argument("--hipvit", required=True, metavar="PROGRAM")
    parser.add_argument("--data", type=Path, help="the folder of the dataset, to fine-tune; not without")
    parser.add_argument("--epochs", default="2", help="of fine-tuning")
    parser.add_argument("--device", default="cpu", help="that evaluates")
    parser.add_argument("--images", type=int, metavar="N", help="the first N test images, not all")
    options = parser.parse_args()
    version = subprocess.run([options.hipvit, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    print(f"{version}, {options.device}\n\n| ViT-Ti/4 | accuracy | points | bytes |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as temporary:
        folder, model = Path(temporary), options.fashion / "model"
        test = folder / "test.safetensors"
        tensors = load_file(options.fashion / "test.safetensors")
        save_file({name: tensor[:options.images].copy() for name, tensor in tensors.items()}, test)
        images = ["--calibrate", options.fashion / "calibration.safetensors"]
        sparse = ["--sparse", "2:4"]
        # Name, directory, which model, how it is written.
        rows = [
            ("int8", "int8", model, ["--to", "int8", *images]),
            ("2:4 by magnitude", "magnitude", model, sparse),
            ("2:4 corrected", "corrected", model, [*sparse, *images]),
            ("2:4 corrected, int8", "corrected_int8", model, [*sparse, "--to", "int8", *images]),
        ]
        if options.data:
            tuned = folder / "finetuned"
            rows += [
                ("2:4 corrected, fine-tuned", "packed", tuned, sparse),
                ("2:4 corrected, fine-tuned, int8", "packed_int8", tuned, [*sparse, "--to", "int8", *images]),
            ]

        def evaluate(of: Path) -> dict:
            result = call(options.hipvit, "eval", test, "--model", of, "--device", options.device)
            assert not result["failed"], f"{result['failed']} images could not be read"
            return result

        def row(name: str, result: dict, points: str, size: int) -> None:
            accuracy = f"{result['accuracy']:.2%} ({result['correct']:,} of {result['images']:,})"
            print(f"| {name} | {accuracy} | {points} | {size:,} |", flush=True)

        full = evaluate(model)
        for index, (name, directory, source, how) in enumerate(rows):
            if directory == "packed":
                subprocess.run([sys.executable, FINETUNE, options.data, folder / "corrected", "-o", tuned, "--epochs", options.epochs],
                               check=True, stdout=sys.stderr)
            report = call(options.hipvit, "quantize", source, "-o", folder / directory, *how)
            if index == 0:
                row("f32", full, "", report["bytes_before"])
            result = evaluate(folder / directory)
            row(name, result, f"{100 * (result['accuracy'] - full['accuracy']):+.2f}", report["bytes_after"])


if __name__ == "__main__":
    main()
