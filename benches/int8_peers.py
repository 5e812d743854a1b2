"""int8 and bf16 on the CPU beside OpenVINO's: one model, the same calibration images, in turns; milliseconds per batch.

    pip install torch timm onnx openvino nncf safetensors pillow
    python3 benches/peers/random_model.py models vit_base_patch16_224
    python3 benches/int8_peers.py models/vit_base_patch16_224 --images PHOTOS --hipvit target/release/hipvit --threads 2

hipvit quantises with `quantize --calibrate`, OpenVINO with NNCF's post-training quantisation for transformers. Each repetition runs
hipvit (`hipvit bench`, a process of its own) and OpenVINO in f32 and in bf16, and of the int8 models in either, which is what their
other layers are in, for each batch size. Beside the times stands what that costs: the logits' root mean square difference from the
same program's f32, on the calibration images.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import nncf
import openvino
import torch
from peers.vit import load
from safetensors.numpy import load_file


def call(program: str, *arguments) -> str:
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"hipvit {arguments[0]}: {done.stderr.strip()}")
    return done.stdout


def pixel_values(program: str, model: Path, images: list[Path], folder: Path) -> list[np.ndarray]:
    """As hipvit preprocesses them."""
    values = []
    for index, image in enumerate(images):
        file = folder / f"{index}.safetensors"
        call(program, "preprocess", image, "--model", model, "--output", file)
        values.append(next(iter(load_file(file).values())))
    return values


def logits_of_hipvit(program: str, model: Path, dtype: str, images: list[Path]) -> np.ndarray:
    lines = call(program, "classify", *images, "--model", model, "--device", "cpu", "--dtype", dtype, "--json", "--logits").splitlines()
    return np.array([json.loads(line)["logits"] for line in lines])


def export(model: Path, folder: Path) -> openvino.Model:
    loaded = load(model)
    file = folder / "model.onnx"
    example = torch.zeros(1, 3, *loaded.size)
    torch.onnx.export(loaded.module, (example,), str(file), input_names=["pixels"], output_names=["logits"], dynamo=False,
                      opset_version=17, dynamic_axes={"pixels": {0: "batch"}, "logits": {0: "batch"}})
    read = openvino.Core().read_model(str(file))
    read.reshape([-1, 3, *loaded.size])
    return read


class OpenVino:
    def __init__(self, model: openvino.Model, precision: str, batch: int, size: list[int], threads: int):
        copy = model.clone()
        copy.reshape([batch, 3, *size])
        compiled = openvino.Core().compile_model(copy, "CPU", {
            "INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads})
        self.request = compiled.create_infer_request()
        self.values = np.random.default_rng(16).standard_normal((batch, 3, *size), dtype=np.float32)

    def logits(self, values: np.ndarray) -> np.ndarray:
        self.request.infer({0: values}, share_inputs=True)
        return self.request.get_output_tensor(0).data.copy()

    def milliseconds(self, runs: int) -> float:
        times = []
        for _ in range(runs + 1):
            start = time.perf_counter()
            self.logits(self.values)
            times.append(1e3 * (time.perf_counter() - start))
        return statistics.median(times[1:])


def hipvit_milliseconds(program: str, model: Path, dtype: str, batch: int, threads: int, runs: int) -> float:
    output = call(program, "bench", "--model", model, "--batch", batch, "--device", "cpu", "--dtype", dtype, "--threads", threads, "--runs", runs,
                  "--no-peaks", "--power-seconds", 0, "--json")
    return next(json.loads(line) for line in output.splitlines() if line.startswith("{"))["end_to_end"]["p50_ms"]


def difference(expected: np.ndarray, got: np.ndarray) -> str:
    error = np.sqrt(np.square(got - expected).mean() / np.square(expected).mean())
    agreeing = (expected.argmax(-1) == got.argmax(-1)).sum()
    return f"logits {100 * error:.2f} % from f32, {agreeing} of {len(expected)} images keep their class"


def label(kind: str, precision: str) -> str:
    """The form of the model, and what its other layers are in."""
    return precision if kind == "f32" else f"{kind} and {precision}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--images", type=Path, required=True, help="a folder of images to calibrate with")
    parser.add_argument("--hipvit", required=True, metavar="PROGRAM")
    parser.add_argument("--batch", default="1,8")
    parser.add_argument("--precisions", default="f32,bf16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--runs", type=int, default=5, help="in a repetition")
    parser.add_argument("--prepare-only", action="store_true", help="quantise, but measure nothing")
    parser.add_argument("--prepare", type=Path, metavar="DIR", help="keep the quantised models there, and reuse them")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    images = sorted(path for path in options.images.iterdir() if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.prepare or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        int8, files = folder / "hipvit-int8", {kind: folder / f"openvino-{kind}.xml" for kind in ("f32", "int8")}
        if not files["int8"].exists():
            call(options.hipvit, "quantize", options.model, "-o", int8, "--calibrate", *images)
            values = pixel_values(options.hipvit, options.model, images, folder)
            full = export(options.model, folder)
            rounded = nncf.quantize(full, nncf.Dataset(values), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(values))
            openvino.save_model(full, files["f32"], compress_to_fp16=False)
            openvino.save_model(rounded, files["int8"], compress_to_fp16=False)
            size = list(values[0].shape[2:])
            forms = [(kind, precision) for kind in ("f32", "int8") for precision in ("f32", "bf16")]
            kinds = {"f32": full, "int8": rounded}
            logits = {(kind, precision): np.concatenate([OpenVino(kinds[kind], precision, 1, size, options.threads).logits(v) for v in values])
                      for kind, precision in forms}
            ours = {"f32": options.model, "int8": int8}
            own = {(kind, dtype): logits_of_hipvit(options.hipvit, ours[kind], dtype, images) for kind, dtype in forms}
            for form in forms[1:]:
                for name, of in (("OpenVINO", logits), ("hipvit", own)):
                    print(f"{name} {label(*form)}: {difference(of['f32', 'f32'], of[form])}", flush=True)
        if options.prepare_only:
            return
        core = openvino.Core()
        models = {kind: core.read_model(file) for kind, file in files.items()}
        size = [side.get_length() for side in list(models["f32"].input(0).partial_shape)[2:]]
        print(f"hipvit {call(options.hipvit, '--version').split()[-1]}, OpenVINO {openvino.__version__.split('-')[0]}, "
              f"NNCF {nncf.__version__}, {len(images)} images, {options.threads} threads, medians of {options.repeat} repetitions")
        for batch in map(int, options.batch.split(",")):
            runs = {}
            for kind, model in (("f32", options.model), ("int8", int8)):
                for precision in options.precisions.split(","):
                    runs[f"hipvit {label(kind, precision)}"] = partial(
                        hipvit_milliseconds, options.hipvit, model, precision, batch, options.threads, options.runs)
                    engine = OpenVino(models[kind], precision, batch, size, options.threads)
                    runs[f"OpenVINO {label(kind, precision)}"] = partial(engine.milliseconds, options.runs)
            times = {name: [] for name in runs}
            for _ in range(options.repeat):
                for name, run in runs.items():
                    times[name].append(run())
            for name, found in times.items():
                middle = statistics.median(found)
                print(f"batch {batch}: {name:24} {middle:8.1f} ms  (from {min(found):.1f} to {max(found):.1f})", flush=True)


if __name__ == "__main__":
    main()
