"""Times ViT-Ti, ViT-S and ViT-B (patch 16, 224x224, f32, CPU) in hipvit and in its peers, side by side, in one command:

    cargo build --release && venv/bin/python benches/peers.py

The environment is that of scripts/requirements.txt. Peers: PyTorch eager, PyTorch compiled (with --compile; needs a C++
compiler), ONNX Runtime, OpenVINO; hipvit runs as `hipvit bench --model DIR --batch N --runs R --json`. All have the same
random weights and the same number of threads.

The peers take turns, a few runs each, for several rounds, so that a slow spell of the machine hits them all; what is
reported is the median of each peer's runs over all rounds (for hipvit, the median of its rounds' medians). Before timing,
the peers' logits on one random batch must agree within 1e-3; hipvit's are compared through `hipvit classify --json` on one
image, where its preprocessing takes part too.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Callable

MODELS = {"tiny": "vit_tiny_patch16_224", "small": "vit_small_patch16_224", "base": "vit_base_patch16_224"}
TOLERANCE = 1e-3
Timer = Callable[[int], list[float]]


def in_process(call: Callable[[], object]) -> Timer:
    """Milliseconds of each of `runs` calls, after one that is not counted: the peers before it took the caches."""

    def timer(runs: int) -> list[float]:
        call()
        times = []
        for _ in range(runs):
            started = time.perf_counter()
            call()
            times.append((time.perf_counter() - started) * 1e3)
        return times

    return timer


def hipvit(binary: Path, directory: Path, batch: int, threads: int) -> Timer:
    def timer(runs: int) -> list[float]:
        command = [binary, "bench", "--model", directory, "--batch", str(batch), "--runs", str(runs), "--json"]
        environment = os.environ | {"RAYON_NUM_THREADS": str(threads)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            sys.exit(f"hipvit bench failed: {done.stderr.strip()}")
        return [json.loads(done.stdout)["median_ms"]]

    return timer


def hipvit_logits(binary: Path, directory: Path, image: Path) -> list[float]:
    done = subprocess.run([binary, "classify", image, "--model", directory, "--json"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"hipvit classify failed: {done.stderr.strip()}")
    return json.loads(done.stdout)["logits"]


def onnx_file(model, pixels, directory: Path):
    import torch

    path = directory / "model.onnx"
    with warnings.catch_warnings():
        # The tracing exporter is deprecated, and says of every Python branch in timm that it becomes a constant.
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (pixels,), path, input_names=["pixels"], output_names=["logits"], dynamo=False,
                          opset_version=17)
    return path


def onnx_runtime(path: Path, pixels, threads: int) -> Callable[[], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {"pixels": pixels.numpy()}
    return lambda: session.run(None, feed)[0]


def openvino(path: Path, pixels, threads: int) -> Callable[[], object]:
    import openvino

    compiled = openvino.Core().compile_model(path, "CPU", {
        "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads})
    request = compiled.create_infer_request()
    feed = {0: pixels.numpy()}

    def call():
        request.infer(feed)
        return request.get_output_tensor(0).data

    return call


def agree(name: str, expected, logits) -> None:
    import torch

    difference = (torch.as_tensor(logits) - expected).abs().max().item()
    if not difference <= TOLERANCE:
        sys.exit(f"{name}: logits differ by {difference:.2e} from torch eager's, more than {TOLERANCE}")


def compare(architecture: str, batch: int, arguments) -> dict[str, float]:
    """Medians in milliseconds for one model and batch."""
    import numpy
    import timm
    import torch
    from PIL import Image
    from timm.data import create_transform, resolve_data_config
    from timm.models import save_for_hf

    torch.manual_seed(16)
    model = timm.create_model(architecture).eval()
    # timm starts heads at a deviation of 0.02; ten times that gives logits of a few units, which a tolerance can bite on.
    torch.nn.init.normal_(model.head.weight, std=0.2)
    pixels = torch.randn(batch, 3, 224, 224)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        directory = Path(folder)
        calls = {"torch eager": lambda: model(pixels)}
        if arguments.compile:
            compiled = torch.compile(model)
            calls["torch.compile"] = lambda: compiled(pixels)
        path = onnx_file(model, pixels, directory)
        calls["onnxruntime"] = onnx_runtime(path, pixels, arguments.threads)
        calls["openvino"] = openvino(path, pixels, arguments.threads)
        expected = calls["torch eager"]()
        for name, call in calls.items():
            agree(name, expected, call())
        timers = {name: in_process(call) for name, call in calls.items()}

        if arguments.hipvit:
            target = directory / "model"
            save_for_hf(model, target, safe_serialization=True)
            noise = numpy.random.default_rng(16).integers(0, 256, (224, 224, 3), dtype=numpy.uint8)
            image = directory / "noise.png"
            Image.fromarray(noise).save(image)
            transform = create_transform(**resolve_data_config(model=model), is_training=False)
            seen = transform(Image.open(image)).unsqueeze(0)
            agree("hipvit", model(seen)[0], hipvit_logits(arguments.hipvit, target, image))
            timers["hipvit"] = hipvit(arguments.hipvit, target, batch, arguments.threads)

        times = {name: [] for name in timers}
        for _ in range(arguments.rounds):
            for name, timer in timers.items():
                times[name] += timer(arguments.runs)
    return {name: statistics.median(values) for name, values in times.items()}


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown CPU"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=3, help="runs of each peer in a round")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--compile", action="store_true", help="time torch.compile too")
    parser.add_argument("--hipvit", type=Path, default=Path("target/release/hipvit"), help="the hipvit binary")
    parser.add_argument("--no-hipvit", dest="hipvit", action="store_const", const=None, help="time the peers alone")
    arguments = parser.parse_args()
    if arguments.hipvit and not arguments.hipvit.is_file():
        parser.error(f"{arguments.hipvit} is not there: build it, name it with --hipvit, or give --no-hipvit")
    # Libraries read these when they start.
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)

    import onnxruntime
    import openvino as ov
    import timm
    import torch

    torch.set_num_threads(arguments.threads)
    print(f"{cpu_name()}, {arguments.threads} threads of {os.cpu_count()}; f32; {arguments.rounds} rounds of "
          f"{arguments.runs} runs, medians")
    print(f"python {platform.python_version()}, torch {torch.__version__}, timm {timm.__version__}, "
          f"onnxruntime {onnxruntime.__version__}, openvino {ov.__version__.split('-')[0]}")
    if arguments.hipvit:
        print(subprocess.run([arguments.hipvit, "--version"], capture_output=True, text=True).stdout.strip())
    for name in arguments.models:
        for batch in arguments.batches:
            medians = compare(MODELS[name], batch, arguments)
            fastest = min(medians.values())
            print(f"\n{MODELS[name]}, batch {batch}")
            for peer, median in sorted(medians.items(), key=lambda item: item[1]):
                print(f"  {peer:14} {median:9.1f} ms   {median / fastest:5.2f}x   {1e3 * batch / median:7.1f} images/s",
                      flush=True)


if __name__ == "__main__":
    main()
