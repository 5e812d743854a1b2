"""Times the Python package beside timm, in one run: milliseconds per call, medians of rounds in which the two take turns, each in a process
of its own, so that the threads of one do not wait for the other's.

    pip install ./python torch timm pillow safetensors
    python benches/peers/random_model.py target/models vit_small_patch16_224 vit_base_patch16_224
    python benches/python.py target/models/vit_small_patch16_224 target/models/vit_base_patch16_224
    python benches/python.py target/models/vit_base_patch16_224 --device hip --dtype bfloat16 --batches 1,8,64

`values` is from float32 pixel values to logits, on the host at both ends; `images` from PIL images of 640×480 to logits, timm with its own
transform. The logits of both are compared before they are timed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Callable

import numpy as np

SIDE = (640, 480)
# Tolerance of half precision relative to the largest logit; float32 differs only by the order of sums.
TOLERANCE = {"float32": 4e-5, "float16": 2e-2, "bfloat16": 1e-1}


def pictures(count: int) -> list[Any]:
    from PIL import Image

    random = np.random.default_rng(count)
    small = random.integers(0, 256, (count, 24, 32, 3), dtype=np.uint8)
    return [Image.fromarray(pixels).resize(SIDE, Image.Resampling.BICUBIC) for pixels in small]


def hipvit_engine(directory: str, arguments: argparse.Namespace) -> Callable[[str, int], Callable[[], Any]]:
    import hipvit

    options = {"device": arguments.device, "dtype": arguments.dtype, "threads": arguments.threads, "batch": arguments.largest}
    images = hipvit.load(directory, **options)
    values = hipvit.load(directory, input="pixel_values", **options)

    def case(what: str, batch: int) -> Callable[[], Any]:
        inputs = pictures(batch)
        if what == "images":
            return lambda: images(inputs)
        tensor = images.preprocess(inputs)
        return lambda: values(tensor)

    return case


def timm_engine(directory: str, arguments: argparse.Namespace) -> Callable[[str, int], Callable[[], Any]]:
    import timm
    import torch

    torch.set_num_threads(arguments.threads)
    device = arguments.device.replace("hip", "cuda")
    dtype = getattr(torch, arguments.dtype)
    model = timm.create_model(f"local-dir:{directory}", pretrained=True).eval().to(device, dtype)
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))

    def run(tensor: Any) -> Any:
        with torch.inference_mode():
            return model(tensor.to(device, dtype)).float().cpu().numpy()

    def case(what: str, batch: int) -> Callable[[], Any]:
        inputs = pictures(batch)
        if what == "images":
            return lambda: run(torch.stack([transform(image) for image in inputs]))
        tensor = torch.stack([transform(image) for image in inputs])
        return lambda: run(tensor)

    return case


ENGINES = {"hipvit": hipvit_engine, "timm": timm_engine}


def serve(connection: Connection, engine: str, directory: str, arguments: argparse.Namespace) -> None:
    """An engine's process: makes the cases that it is asked for, and times one call of the last."""
    make = ENGINES[engine](directory, arguments)
    run: Callable[[], Any] = lambda: None
    while (request := connection.recv()) is not None:
        if request == "time":
            begin = time.perf_counter()
            run()
            connection.send(time.perf_counter() - begin)
        else:
            run = make(*request)
            run()
            connection.send(run())


def measure(directory: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    engines: dict[str, Any] = {}
    for name in ENGINES:
        ours, theirs = context.Pipe()
        context.Process(target=serve, args=(theirs, name, directory, arguments), daemon=True).start()
        engines[name] = ours
    rows = []
    for what in ("values", "images"):
        for batch in arguments.batches:
            logits = {}
            for name, engine in engines.items():
                engine.send((what, batch))
                logits[name] = engine.recv()
            largest = np.abs(logits["timm"]).max()
            error = float(np.abs(logits["hipvit"] - logits["timm"]).max() / largest)
            if not error <= TOLERANCE[arguments.dtype]:
                raise SystemExit(f"{directory}, {what}, batch {batch}: the logits differ by {error:.1e} of the largest")
            times: dict[str, list[float]] = {name: [] for name in engines}
            begin = time.monotonic()
            while time.monotonic() - begin < arguments.seconds or len(times["timm"]) < 5:
                for name, engine in engines.items():
                    engine.send("time")
                    times[name].append(engine.recv())
            median = {name: 1e3 * statistics.median(taken) for name, taken in times.items()}
            row = {"model": Path(directory).name, "what": what, "batch": batch, **median, "rounds": len(times["timm"]), "error": error}
            rows.append(row)
            print(
                f"{row['model']:24} {what:7} {batch:5} {median['hipvit']:10.2f} {median['timm']:10.2f}"
                f" {median['timm'] / median['hipvit']:8.2f} {row['rounds']:7} {error:9.1e}",
                flush=True,
            )
    for engine in engines.values():
        engine.send(None)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("models", nargs="+", help="directories, as timm writes them")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=TOLERANCE, default="float32")
    parser.add_argument("--batches", type=lambda text: [int(batch) for batch in text.split(",")], default=[1, 8])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=10, help="of each row")
    parser.add_argument("--output", type=Path, help="a JSON Lines file for the rows")
    arguments = parser.parse_args()
    arguments.largest = max(arguments.batches)
    print(f"{platform.processor() or platform.machine()}, {arguments.threads} threads, {arguments.device}, {arguments.dtype}; ms per call")
    print(f"{'model':24} {'from':7} {'batch':>5} {'hipvit':>10} {'timm':>10} {'speed-up':>8} {'rounds':>7} {'error':>9}")
    rows = [row for directory in arguments.models for row in measure(directory, arguments)]
    if arguments.output:
        arguments.output.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
