"""Fine-tunes a larger ViT on half of Fashion-MNIST: all weights, LoRA, the classifier alone, a linear probe, and from random weights.

    apt-get download dataset-fashion-mnist && dpkg -x dataset-fashion-mnist_*.deb data
    python3 benches/fine_tune.py data/usr/share/datasets/fashion-mnist --hipvit target/release/hipvit

The weights are made here: `hipvit train` trains the model on the first five classes, from random weights. Each way of fine-tuning then gets
the same images of the other five classes, and is tested with all their test images. Needs only Python.
"""

import argparse
import gzip
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECIPE = """
epochs = 1
clip_norm = 1.0
[loss]
label_smoothing = 0.1
[optimizer]
weight_decay = 0.05
[schedule]
warmup_epochs = {warmup}
[augmentation]
crop = "padded"
padding = {padding}
flip = 0.5
[evaluation]
every = 1000
[checkpoints]
every = 1000
keep = 1
"""


def read_idx(file):
    data = gzip.decompress(file.read_bytes())
    header = 4 + 4 * data[3]
    return data[header:]


def write_idx(file, shape, content):
    header = bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
    file.write_bytes(header + content)


def write_subset(source, target, classes, training_images):
    """Writes the images of some classes, whose labels become 0, 1, …: at most so many for training, and all for testing."""
    target.mkdir()
    for part, limit in (("train", training_images), ("t10k", None)):
        images, labels = (read_idx(source / f"{part}-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1"))
        chosen = [index for index, label in enumerate(labels) if label in classes]
        random.Random(0).shuffle(chosen)
        chosen = chosen[:limit]
        size = 28 * 28
        content = b"".join(images[index * size : (index + 1) * size] for index in chosen)
        write_idx(target / f"{part}-images-idx3-ubyte", [len(chosen), 28, 28], content)
        write_idx(target / f"{part}-labels-idx1-ubyte", [len(chosen)], bytes(classes.index(labels[index]) for index in chosen))


class Runs:
    def __init__(self, arguments, folder):
        self.arguments, self.folder, self.rows = arguments, folder, []

    def run(self, command):
        begun = time.perf_counter()
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
        return done, time.perf_counter() - begun

    def train(self, name, data, epochs, rate, *more):
        a, output = self.arguments, self.folder / name.replace(" ", "-")
        recipe = self.folder / "recipe.toml"
        recipe.write_text(RECIPE.format(warmup=max(epochs // 5, 1), padding=max(a.image_size // 14, 1)))
        command = [a.hipvit, "train", data, "-o", output, "--recipe", recipe, "--epochs", epochs, "--batch", a.batch, "--lr", rate,
                   "--device", a.device, "--dtype", a.dtype, "--log-every", 10, *more]
        done, seconds = self.run(command)
        lines = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
        memory = next(line["bytes"] for line in lines if line["event"] == "memory")
        last = [line for line in lines if line["event"] == "epoch"][-1]
        trained = re.search(r"training (\d+) parameters", done.stderr)
        self.row(name, int(trained[1]) if trained else None, last["val_accuracy"], memory, seconds)
        return output / "model"

    def probe(self, data, model):
        a = self.arguments
        done, seconds = self.run([a.hipvit, "probe", data, "-m", model, "--device", a.device, "--dtype", a.dtype, "--batch", 256, "--json"])
        result = json.loads(done.stdout.splitlines()[-1])
        self.row("linear probe", 0, result["linear"]["accuracy"], None, seconds)
        self.row("k-NN", 0, max(knn["accuracy"] for knn in result["knn"]), None, seconds)

    def row(self, name, trained, accuracy, memory, seconds):
        self.rows.append((name, trained, accuracy, memory, seconds))
        print(f"{name}: {100 * accuracy:.2f} %, {seconds:.1f} s", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", type=Path, help="the folder with the dataset's four .gz files")
    parser.add_argument("--hipvit", default="target/release/hipvit")
    parser.add_argument("--device", default="hip")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--model", default="vit_small_patch8_224", help="a timm architecture")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--pretraining-images", type=int, default=30000)
    parser.add_argument("--pretraining-epochs", type=int, default=10)
    parser.add_argument("--images", type=int, default=2560, help="images of the other classes to train with")
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        write_subset(arguments.data, folder / "first", range(5), arguments.pretraining_images)
        write_subset(arguments.data, folder / "others", range(5, 10), arguments.images)
        runs, others, epochs = Runs(arguments, folder), folder / "others", arguments.epochs
        random_weights = ["-m", arguments.model, "--image-size", arguments.image_size]
        model = runs.train("first classes", folder / "first", arguments.pretraining_epochs, 5e-4, *random_weights)
        runs.train("all weights", others, epochs, 1e-4, "-m", model)
        runs.train("LoRA of rank 16", others, epochs, 1e-3, "-m", model, "--lora", 16)
        runs.train("classifier alone", others, epochs, 1e-2, "-m", model, "--freeze", "backbone")
        runs.train("random weights", others, epochs, 5e-4, *random_weights)
        runs.probe(others, model)
    print(f"{arguments.model} at {arguments.image_size} pixels, {arguments.dtype}, {arguments.device}: {arguments.images} training images of five classes, "
          f"{epochs} epochs; pretrained with {arguments.pretraining_images} images of five others, {arguments.pretraining_epochs} epochs")
    print("| trained | elements | accuracy | planned memory, MB | seconds |\n| --- | --- | --- | --- | --- |")
    for name, trained, accuracy, memory, seconds in runs.rows:
        memory = "" if memory is None else f"{memory / 1e6:.0f}"
        trained = "" if trained is None else f"{trained:,}"
        print(f"| {name} | {trained} | {100 * accuracy:.2f} % | {memory} | {seconds:.1f} |")


if __name__ == "__main__":
    main()
