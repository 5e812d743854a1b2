"""Drives a model by MLPerf's load generator (mlcommons-loadgen): offline, single-stream and server scenarios, and their accuracy.

    pip install ./python mlcommons-loadgen safetensors
    python benches/mlperf.py                                           # the embedded model on its 360 held-out digits
    python benches/mlperf.py --scenario server --qps 500 --latency-ms 20
    python benches/mlperf.py --mode accuracy --scenario offline
    python benches/mlperf.py --model DIR --images imagenet/val --labels val_map.txt --device hip --dtype bfloat16 --batch 256 --qps 9000

Samples are images at the model's size, in host memory, as MLPerf's rules for image classification have them; with --encoded they are
the files' bytes, so that decoding and resizing are timed too. `labels` has a line `FILE CLASS` per image. Runs are 10 s by default; MLPerf's
own take 600 s (--seconds 600). No result of this script is a submission to MLPerf or was reviewed by MLCommons.
"""

from __future__ import annotations

import argparse
import json
import queue
import struct
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Optional

import mlperf_loadgen as lg
import numpy as np

import hipvit

SCENARIOS = {
    "offline": lg.TestScenario.Offline,
    "single-stream": lg.TestScenario.SingleStream,
    "server": lg.TestScenario.Server,
}
ROOT = Path(__file__).resolve().parents[1]


class Samples:
    """The images, and their classes if they are known."""

    def __init__(self, arguments: argparse.Namespace, model: hipvit.Model) -> None:
        self.model, self.encoded = model, arguments.encoded
        self.classes: Optional[list[int]] = None
        self.loaded: dict[int, Any] = {}
        if arguments.images is None:
            if arguments.model is not None or arguments.encoded:
                raise SystemExit("--images: is needed for this")
            from safetensors.numpy import load_file

            held_out = load_file(ROOT / "assets" / "digits" / "heldout.safetensors")
            self.images: Any = list(np.repeat(held_out["images"][..., None], 3, axis=-1))
            self.classes = [int(index) for index in held_out["labels"]]
            return
        self.images = sorted(path for path in arguments.images.rglob("*") if path.is_file())
        if not self.images:
            raise SystemExit(f"{arguments.images}: has no files")
        if arguments.labels:
            lines = (line.rsplit(None, 1) for line in arguments.labels.read_text().splitlines() if line.strip())
            by_name = {name: int(index) for name, index in lines}
            self.images = [path for path in self.images if path.name in by_name]
            self.classes = [by_name[path.name] for path in self.images]

    def load(self, indices: list[int]) -> None:
        for index in indices:
            image = self.images[index]
            self.loaded[index] = (
                image.read_bytes() if self.encoded else self.model.preprocess([image], normalize=False)[0]
            )

    def unload(self, indices: list[int]) -> None:
        for index in indices:
            self.loaded.pop(index, None)

    def logits(self, indices: list[int]) -> Any:
        inputs = [self.loaded[index] for index in indices]
        return self.model(inputs) if self.encoded else self.model(np.stack(inputs), resize=False)


class System:
    """The system under test: what has arrived while a batch ran is the next batch."""

    def __init__(self, samples: Samples, batch: int, workers: int) -> None:
        self.samples, self.batch = samples, batch
        self.arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.failed: Optional[BaseException] = None
        self.threads = [threading.Thread(target=self._work) for _ in range(workers)]
        for thread in self.threads:
            thread.start()

    def issue(self, queries: list[Any]) -> None:
        for query in queries:
            self.arrived.put((query.id, query.index))

    def flush(self) -> None:
        """Nothing waits for a batch to fill."""

    def close(self) -> None:
        for _ in self.threads:
            self.arrived.put(None)
        for thread in self.threads:
            thread.join()

    def _next(self) -> list[Any]:
        first = self.arrived.get()
        if first is None:
            return []
        queries = [first]
        while len(queries) < self.batch:
            try:
                query = self.arrived.get_nowait()
            except queue.Empty:
                break
            if query is None:
                self.arrived.put(None)
                break
            queries.append(query)
        return queries

    def _work(self) -> None:
        while queries := self._next():
            indices = [index for _, index in queries]
            try:
                best = self.samples.logits(indices).argmax(axis=1)
            except BaseException as error:
                # The load generator waits for an answer to every query, so a failure is answered too, and reported at the end.
                self.failed = self.failed or error
                best = np.full(len(queries), -1)
            answers = np.ascontiguousarray(best, dtype=np.int32)
            responses = [
                lg.QuerySampleResponse(query, answers[i:].ctypes.data, answers.itemsize) for i, (query, _) in enumerate(queries)
            ]
            lg.QuerySamplesComplete(responses)


def settings(arguments: argparse.Namespace) -> Any:
    chosen = lg.TestSettings()
    chosen.scenario = SCENARIOS[arguments.scenario]
    chosen.mode = lg.TestMode.AccuracyOnly if arguments.mode == "accuracy" else lg.TestMode.PerformanceOnly
    chosen.min_duration_ms = int(1e3 * arguments.seconds)
    chosen.min_query_count = 1 if arguments.scenario == "offline" else 100
    chosen.offline_expected_qps = chosen.server_target_qps = arguments.qps
    chosen.single_stream_expected_latency_ns = int(1e9 / arguments.qps)
    chosen.server_target_latency_ns = int(1e6 * arguments.latency_ms)
    return chosen


def accuracy(folder: Path, samples: Samples) -> float:
    """Of what the load generator has logged: as MLPerf's own script for ImageNet counts it."""
    if samples.classes is None:
        raise SystemExit("--labels: accuracy needs them")
    found = {}
    for entry in json.loads((folder / "mlperf_log_accuracy.json").read_text()):
        (found[entry["qsl_idx"]],) = struct.unpack("<i", bytes.fromhex(entry["data"]))
    if len(found) != len(samples.images):
        raise SystemExit(f"{len(found)} of {len(samples.images)} images have an answer")
    correct = sum(samples.classes[index] == answer for index, answer in found.items())
    print(f"accuracy: {correct} of {len(found)} images, {100 * correct / len(found):.3f} %")
    return correct / len(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--scenario", choices=[*SCENARIOS, "all"], default="all")
    parser.add_argument("--mode", choices=("performance", "accuracy"), default="performance")
    parser.add_argument("--model")
    parser.add_argument("--images", type=Path, help="a folder")
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--encoded", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=1, help="threads that call the model; 2 overlap copies on a GPU")
    parser.add_argument("--qps", type=float, default=500, help="what is offered: the server's load, and the size of the offline query")
    parser.add_argument("--latency-ms", type=float, default=15, help="within which the server answers 99 %% of its queries")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--expect-accuracy", type=float, help="fails below it")
    parser.add_argument("--output", type=Path, help="the folder for the load generator's logs")
    arguments = parser.parse_args()
    model = hipvit.load(arguments.model, arguments.device, arguments.dtype, arguments.batch)
    samples = Samples(arguments, model)
    print(model)
    valid = True
    with tempfile.TemporaryDirectory() as temporary:
        for scenario in list(SCENARIOS) if arguments.scenario == "all" else [arguments.scenario]:
            arguments.scenario = scenario
            folder = (arguments.output or Path(temporary)) / scenario
            folder.mkdir(parents=True, exist_ok=True)
            log = lg.LogSettings()
            log.log_output = lg.LogOutputSettings()
            log.log_output.outdir = str(folder)
            log.enable_trace = False
            system = System(samples, arguments.batch, arguments.workers)
            sut = lg.ConstructSUT(system.issue, system.flush)
            qsl = lg.ConstructQSL(len(samples.images), min(len(samples.images), 1024), samples.load, samples.unload)
            try:
                lg.StartTestWithLogSettings(sut, qsl, settings(arguments), log)
            finally:
                system.close()
                lg.DestroyQSL(qsl)
                lg.DestroySUT(sut)
            if system.failed:
                raise system.failed
            if arguments.mode == "accuracy":
                print(f"{scenario}, ", end="")
                valid &= accuracy(folder, samples) >= (arguments.expect_accuracy or 0)
                continue
            summary = (folder / "mlperf_log_summary.txt").read_text()
            print(summary.split("Test Parameters Used")[0].rstrip("=\n"))
            valid &= "Result is : VALID" in summary
    return 0 if valid else 1


if __name__ == "__main__":
    sys.exit(main())
