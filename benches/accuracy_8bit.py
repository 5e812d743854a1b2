"""What 8 bits cost: accuracy over labelled images that the model was not trained on, in full precision and as `hipvit quantize` writes it.

    venv/bin/python scripts/train_fashion_mnist.py DATA -o fashion     # it says where DATA is from
    venv/bin/python benches/accuracy_8bit.py fashion --hipvit target/release/hipvit

Two models: the ViT-Ti/4 that the script trained, with Fashion-MNIST's 10,000 test images, and the embedded TinyViT32 with its 360
held-out digits. What is calibrated takes 256 images of their training data. Prints a table in Markdown.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file
from sklearn.datasets import load_digits

REPOSITORY = Path(__file__).resolve().parent.parent
HELD_OUT = REPOSITORY / "assets/digits/heldout.safetensors"
sys.path.insert(0, str(REPOSITORY / "scripts"))
from train_tinyvit32 import render  # noqa: E402

CALIBRATION = 256


def call(program: str, *arguments) -> dict:
    done = subprocess.run([program, *map(str, arguments), "--json"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"hipvit {arguments[0]}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def training_digits(file: Path) -> Path:
    """Writes the first digits that TinyViT32 was trained on."""
    held_out = load_file(HELD_OUT)["indices"]
    data = load_digits()
    some = np.setdiff1d(np.arange(len(data.images)), held_out)[:CALIBRATION]
    save_file({"images": np.stack([render(image) for image in data.images[some]]), "labels": data.target[some].astype(np.uint8)}, file)
    return file


def first(images: Path, count: int, file: Path) -> Path:
    save_file({name: tensor[:count].copy() for name, tensor in load_file(images).items()}, file)
    return file


def quantize(program: str, model: list, directory: Path, arguments: list) -> dict:
    """Its report. A directory that is there already is taken as it is."""
    report = directory.with_suffix(".json")
    if not report.exists():
        report.write_text(json.dumps(call(program, "quantize", *model, "-o", directory, *arguments)))
    return json.loads(report.read_text())


def compare(title: str, model: list, images: Path, calibration: Path, folder: Path, options: argparse.Namespace) -> None:
    """Prints a row for each precision. `model` is empty for the embedded one."""
    folder.mkdir(parents=True, exist_ok=True)
    calibrate = ["--calibrate", calibration]
    threads = ["--threads", options.threads] if options.threads else []
    precisions = {
        "int8": ("int8", ["--to", "int8", *calibrate]),
        "fp8-weights": ("fp8, weights alone", ["--to", "fp8"]),
        "fp8": ("fp8, weights and activations", ["--to", "fp8", *calibrate]),
        "fp8-percentile": ("fp8, 99.99 % of the magnitudes", ["--to", "fp8", *calibrate, "--activation-range", "99.99%"]),
        "fp8-mse": ("fp8, least error of activations", ["--to", "fp8", *calibrate, "--activation-range", "mse"]),
        "fp8-dynamic": ("fp8, each token by its own scale", ["--to", "fp8-dynamic"]),
        "auto": (f"auto, budget {options.budget}", ["--to", "auto", "--budget", options.budget, *calibrate]),
    }

    def evaluate(of: list) -> dict:
        result = call(options.hipvit, "eval", images, *of, "--device", options.device, *threads)
        assert not result["failed"], f"{result['failed']} images could not be read"
        return result

    def row(precision: str, result: dict, difference: str, rounded: str, size: int) -> None:
        accuracy = f"{100 * result['accuracy']:.2f} % ({result['correct']:,} of {result['images']:,})"
        print(f"| {title} | {precision} | {accuracy} | {difference} | {rounded} | {size:,} |", flush=True)

    full = evaluate(["--model", *model] if model else [])
    for name, (precision, arguments) in precisions.items():
        report = quantize(options.hipvit, model, folder / name, arguments)
        if name == "int8":
            row("f32", full, "", "0", report["bytes_before"])
        result = evaluate(["--model", folder / name])
        points = 100 * (result["accuracy"] - full["accuracy"])
        row(precision, result, f"{points:+.2f}", str(report["quantized"]), report["bytes_after"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("fashion", type=Path, help="what scripts/train_fashion_mnist.py wrote")
    parser.add_argument("--hipvit", required=True, metavar="PROGRAM")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--budget", default="0.5%", help="auto's largest error of the logits")
    parser.add_argument("--images", type=int, metavar="N", help="the first N test images of Fashion-MNIST, not all")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the quantised models there, and reuse them")
    options = parser.parse_args()
    version = subprocess.run([options.hipvit, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    print(f"{version}, {options.device}\n\n| model | precision | accuracy | points | layers in 8 bits | bytes |\n| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as temporary:
        temporary = Path(temporary)
        keep = options.keep or temporary
        digits = training_digits(temporary / "digits.safetensors")
        compare("TinyViT32", [], HELD_OUT, digits, keep / "tinyvit32", options)
        test = options.fashion / "test.safetensors"
        if options.images:
            test = first(test, options.images, temporary / "test.safetensors")
        compare("ViT-Ti/4", [options.fashion / "model"], test, options.fashion / "calibration.safetensors", keep / "fashion", options)


if __name__ == "__main__":
    main()
