"""What one image costs a new process: time to the first logits, peak memory, and what must be installed, of hipvit and of short
scripts with ONNX Runtime and timm, on the CPU with the same model, image and threads.

    python3 benches/startup.py --hipvit target/release/hipvit [--model DIR] [--runs 5] [--threads 2]

Needs Pillow, numpy, onnx, onnxruntime and timm (with PyTorch) from scripts/requirements.txt. The ONNX model is exported once, before
anything is timed. The engines take turns; the first turn fills the file cache and is not counted.
"""

import argparse
import importlib.metadata
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ONNXRUNTIME = """
import sys
import numpy, onnxruntime
from PIL import Image
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(sys.argv[3])
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
image = Image.open(sys.argv[2]).convert("RGB").resize((224, 224), Image.Resampling.BICUBIC)
pixels = (numpy.asarray(image, dtype=numpy.float32).transpose(2, 0, 1)[None] / 255 - 0.5) / 0.5
print(session.run(None, {"pixels": pixels})[0].argmax())
"""

TIMM = """
import sys
import timm, torch
from PIL import Image
torch.set_num_threads(int(sys.argv[3]))
model = timm.create_model("local-dir:" + sys.argv[1], pretrained=True).eval()
transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
with torch.inference_mode():
    print(model(transform(Image.open(sys.argv[2]).convert("RGB"))[None]).argmax().item())
"""

EXPORT = """
import sys, warnings
import timm, torch
warnings.simplefilter("ignore")
model = timm.create_model("local-dir:" + sys.argv[1], pretrained=True).eval()
torch.onnx.export(model, (torch.zeros(1, 3, 224, 224),), sys.argv[2], input_names=["pixels"], output_names=["logits"], dynamo=False,
                  opset_version=17)
"""


def measure(command: list[str]) -> tuple[float, int]:
    """Seconds from start to exit, and peak resident bytes, of a process that must succeed."""
    with tempfile.TemporaryFile() as log:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        if status != 0:
            log.seek(0)
            sys.exit(f"{command[0]} failed: {log.read().decode(errors='replace')[-2000:]}")
    return seconds, usage.ru_maxrss * 1024


def installed_bytes(packages: list[str]) -> int:
    """The files of Python packages and of all that they require."""
    seen: set[str] = set()
    total, pending = 0, list(packages)
    while pending:
        name = re.sub(r"[-_.]+", "-", pending.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # required elsewhere only
        total += sum(path.stat().st_size for file in distribution.files or [] if (path := Path(file.locate())).is_file())
        pending += [re.split(r"[^\w.-]", line)[0] for line in distribution.requires or [] if "extra ==" not in line]
    return total


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    arguments.add_argument("--hipvit", default="target/release/hipvit")
    arguments.add_argument("--model", help="a timm directory at 224×224; ViT-B/16 with random weights by default")
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--threads", type=int, default=os.cpu_count())
    options = arguments.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        model = options.model
        if model is None:
            model = str(Path(folder) / "vit_base_patch16_224")
            sys.path.insert(0, str(Path(__file__).parent))
            from peers.random_model import write

            write(Path(model), "vit_base_patch16_224")
        onnx, image = str(Path(folder) / "model.onnx"), str(Path(folder) / "image.png")
        subprocess.run([sys.executable, "-c", EXPORT, model, onnx], check=True)

        import numpy
        from PIL import Image

        pixels = numpy.random.default_rng(16).integers(0, 256, (480, 640, 3), dtype=numpy.uint8)
        Image.fromarray(pixels).save(image)
        threads = str(options.threads)
        # Name, command, bytes to install.
        engines = [
            (
                "hipvit",
                [options.hipvit, "classify", image, "--model", model, "--device", "cpu", "--threads", threads],
                Path(options.hipvit).stat().st_size,
            ),
            (
                "ONNX Runtime script",
                [sys.executable, "-c", ONNXRUNTIME, onnx, image, threads],
                installed_bytes(["onnxruntime", "numpy", "pillow"]),
            ),
            (
                "timm script",
                [sys.executable, "-c", TIMM, model, image, threads],
                installed_bytes(["timm", "torch", "pillow"]),
            ),
        ]
        results = {name: [] for name, _, _ in engines}
        for turn in range(options.runs + 1):
            for name, command, _ in engines:
                result = measure(command)
                if turn > 0:
                    results[name].append(result)

    print("| one image, new process | s to exit | peak memory, MiB | to install, MiB |")
    print("| --- | --- | --- | --- |")
    for name, _, size in engines:
        seconds = statistics.median(of for of, _ in results[name])
        peak = statistics.median(of for _, of in results[name])
        print(f"| {name} | {seconds:.2f} | {peak / 2**20:.0f} | {size / 2**20:.0f} |")


if __name__ == "__main__":
    main()
