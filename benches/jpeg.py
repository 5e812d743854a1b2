#!/usr/bin/env python3
"""Times JPEG files to logits with the pixels computed by the host and by the GPU, beside Pillow's decoding alone.

    python3 benches/jpeg.py --model DIR --device hip --dtype bf16

Writes 256 baseline and 256 progressive files of 500×375 pixels to a temporary directory, unless `--files` has the folders `baseline` and
`progressive`. The pictures have a photograph's spectrum and edges; 4:2:0, quality 85, about two bits per pixel. `cargo bench --bench jpeg`
and Pillow, in one process per core, take turns, `--repeats` times. Prints medians as images/s, ratios to Pillow, and for single calls the
median and the 99th percentile. Needs Pillow and numpy.
"""

import argparse
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy as np
from PIL import Image, __version__, features

WIDTH, HEIGHT, FILES = 500, 375, 256


def picture(rng):
    """Pink noise in brightness and, weaker, in colour, with the edges of overlapping shapes."""
    fy, fx = np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH)[None, :]
    radius = np.maximum(np.hypot(fy, fx), 1 / WIDTH)

    def noise(power):
        phases = rng.normal(size=(*radius.shape, 2)) @ [1, 1j]
        plane = np.fft.irfft2(phases / radius**power, s=(HEIGHT, WIDTH))
        return plane / plane.std()

    luma = 45 * noise(1.35)
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    for _ in range(12):
        cx, cy, r = rng.uniform(0, WIDTH), rng.uniform(0, HEIGHT), rng.uniform(15, 120)
        luma[np.hypot(x - cx, (y - cy) * rng.uniform(0.5, 2)) < r] += rng.normal(0, 30)
    cb, cr = 12 * noise(1.5), 12 * noise(1.5)
    image = np.stack([luma + cr, luma - (cb + cr) / 2, luma + cb], -1) + 120
    return Image.fromarray(np.clip(image, 0, 255).astype(np.uint8))


def write(folder, quality):
    rng = np.random.default_rng(20261128)
    for kind in ("baseline", "progressive"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for index in range(FILES):
        image = picture(rng)
        for kind in ("baseline", "progressive"):
            path = folder / kind / f"{index:03}.jpg"
            image.save(path, quality=quality, subsampling="4:2:0", progressive=kind == "progressive")


def decode(path):
    with Image.open(path) as image:
        image.convert("RGB").load()


class Worker:
    """The bench `jpeg`, which answers a line per command."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *command):
        self.process.stdin.write(" ".join(map(str, command)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer:
            raise SystemExit(f"the bench ended at {command}")
        return [float(figure) for figure in answer]


def numbers(text):
    return [int(number) for number in text.split(",") if number]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="model directory [default: the embedded TinyViT32]")
    parser.add_argument("--device", default="hip")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--files", type=pathlib.Path, help="folder for the JPEG files, which are written if it has none")
    parser.add_argument("--quality", type=int, default=85)
    parser.add_argument("--images", type=int, default=4096, help="images of a repetition")
    parser.add_argument("--calls", type=int, default=60, help="calls of a repetition")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batches", type=numbers, default="1,256", help="batch sizes of the pipeline; none to measure decoding only")
    parser.add_argument("--call-batches", type=numbers, default="1,64,256", help="batch sizes of single calls; none to measure decoding only")
    parser.add_argument("--worker", help="the built bench [default: cargo bench --bench jpeg]")
    return parser.parse_args()


def main():
    options = arguments()
    cores = len(os.sched_getaffinity(0))
    temporary = tempfile.TemporaryDirectory()
    folder = options.files or pathlib.Path(temporary.name)
    if not (folder / "progressive").is_dir():
        write(folder, options.quality)
    model = ["--model", options.model] if options.model else []
    start = [options.worker] if options.worker else ["cargo", "bench", "--quiet", "--bench", "jpeg", "--"]
    # The processes start before the worker's threads, and stay.
    with multiprocessing.Pool(cores) as pool:
        worker = Worker([*start, "--device", options.device, "--dtype", options.dtype, *model])
        jpeg_turbo = features.version("libjpeg_turbo")
        print(f"Pillow {__version__}, libjpeg-turbo {jpeg_turbo}; {cores} cores; {options.repeats} interleaved repetitions", flush=True)
        for kind in ("baseline", "progressive"):
            measure(options, cores, (folder / kind, kind), pool, worker)
        worker.process.stdin.close()
        worker.process.wait()


def measure(options, cores, files, pool, worker):
    folder, kind = files
    paths = sorted(folder.iterdir())
    bits = 8 * sum(path.stat().st_size for path in paths) / len(paths) / (WIDTH * HEIGHT)
    print(f"\n{kind}, {bits:.2f} bits/pixel", flush=True)
    worker.ask("files", folder)
    few = min(options.images, max(64, options.images // 16))

    def pillow(count, workers):
        listed = [str(paths[index % len(paths)]) for index in range(count)]
        begin = time.perf_counter()
        if workers == 1:
            for path in listed:
                decode(path)
        else:
            pool.map(decode, listed, chunksize=8)
        return [count / (time.perf_counter() - begin)]

    rows = {
        "Pillow, 1 core": lambda: pillow(few, 1),
        "entropy decoding, 1 core": lambda: worker.ask("coefficients", 1, few),
        "decoding, 1 core": lambda: worker.ask("pixels", 1, few),
        f"Pillow, {cores} cores": lambda: pillow(options.images, cores),
        f"entropy decoding, {cores} cores": lambda: worker.ask("coefficients", cores, options.images),
        f"decoding, {cores} cores": lambda: worker.ask("pixels", cores, options.images),
    }
    for batch in options.batches:
        count = options.images if batch > 8 else few
        for on in ("host", "device"):
            rows[f"files to logits, batch {batch}, decoded by the {on}"] = (
                lambda batch=batch, on=on, count=count: worker.ask("pipeline", batch, on, count))
    calls = {
        (batch, on): lambda batch=batch, on=on: worker.ask("calls", batch, on, options.calls)
        for batch in options.call_batches for on in ("host", "device")
    }
    for warm in [*rows.values(), *calls.values()]:
        warm()
    figures = {name: [] for name in [*rows, *calls]}
    for _ in range(options.repeats):
        for name, run in [*rows.items(), *calls.items()]:
            figures[name].append(run())
    reference = {"1": "Pillow, 1 core", "all": f"Pillow, {cores} cores"}
    print(f"{'images/s':<50} {'median':>9} {'range':>17} {'of Pillow':>9}")
    for name in rows:
        rates = [figure[0] for figure in figures[name]]
        of = figures[reference["1" if "1 core" in name else "all"]]
        # The ratio of each repetition, whose runs are next to each other.
        ratio = statistics.median(rate / pillow[0] for rate, pillow in zip(rates, of))
        print(f"{name:<50} {statistics.median(rates):>9.0f} {min(rates):>8.0f}–{max(rates):<8.0f} {ratio:>9.2f}")
    if calls:
        print(f"{'ms of one call':<50} {'median':>9} {'p99':>9} {'p99/median':>10}")
    for batch, on in calls:
        medians, tails = zip(*figures[batch, on])
        ratio = statistics.median(tail / median for median, tail in figures[batch, on])
        name = f"batch {batch}, decoded by the {on}"
        print(f"{name:<50} {statistics.median(medians):>9.2f} {statistics.median(tails):>9.2f} {ratio:>10.2f}")


if __name__ == "__main__":
    main()
