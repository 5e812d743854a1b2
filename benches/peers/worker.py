"""A process that runs one engine: requests come as JSON lines on standard input, answers go to standard output. So an engine
that crashes, hangs or takes all memory ends alone, and its memory is counted alone."""

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import rows


def spread(seconds: float, once: float, least: int, most: int) -> int:
    """How many runs of `once` seconds to time in `seconds`."""
    return int(min(max(seconds / max(once, 1e-9), least), most))


class Worker:
    def __init__(self, kind: str):
        self.kind = kind
        self.engine = None

    def hello(self) -> dict[str, Any]:
        """What this engine runs on."""
        from .engines import ENGINES
        from .environment import versions

        made = ENGINES[self.kind]
        __import__(made.package)
        return {"version": made.version(), "libraries": versions()}

    def prepare(self, model: str, batch: int, dtype: str, device: str, threads: int) -> dict[str, Any]:
        import torch

        from .engines import ENGINES

        torch.set_num_threads(threads)
        # Disable TF32 for f32.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        self.finish()
        start = time.perf_counter()
        self.engine = ENGINES[self.kind](Path(model), batch, dtype, device)
        took = time.perf_counter() - start
        self.warm_up(2, 0)
        loaded = self.engine.loaded
        return {
            "options": {**self.engine.options(), "pinned": self.engine.gpu, "prepare_s": round(took, 1)},
            "name": loaded.name,
            "flops_per_image": loaded.flops(),
        }

    def warm_up(self, runs: int, seconds: float) -> float:
        """Until both are reached; returns the seconds of a run."""
        count, start = 0, time.perf_counter()
        while count < runs or time.perf_counter() < start + seconds:
            self.engine.end_to_end()
            count += 1
        return (time.perf_counter() - start) / count

    def run(self, seconds: float, runs: int | None, least: int) -> dict[str, Any]:
        """TIMES of one repetition."""
        once = self.warm_up(2, seconds / 4)
        count = runs or spread(seconds, once, least, 1000)
        milliseconds = []
        for _ in range(count):
            start = time.perf_counter()
            self.engine.end_to_end()
            milliseconds.append(1e3 * (time.perf_counter() - start))
        batch = self.engine.batch
        whole = rows.times(milliseconds, batch)
        return {"end_to_end": whole, "device_only": rows.times(self.by_events(count), batch) if self.engine.gpu else None}

    def by_events(self, runs: int) -> list[float]:
        """Milliseconds between events around each run, while the next ones are being submitted."""
        import torch

        for _ in range(2):
            self.engine.device_only()
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(runs)]
        torch.cuda.synchronize()
        for before, after in pairs:
            before.record()
            self.engine.device_only()
            after.record()
        torch.cuda.synchronize()
        return [before.elapsed_time(after) for before, after in pairs]

    def power(self, seconds: float, bus: str | None) -> dict[str, Any]:
        import torch

        from .power import measure, sensor

        def run() -> int:
            # Enough runs that waiting for them leaves no gap.
            for _ in range(10):
                self.engine.device_only()
            torch.cuda.synchronize()
            return 10 * self.engine.batch

        return measure(sensor(bus), run, seconds)

    def logits(self, pixels: str) -> list[float]:
        from safetensors.torch import load_file

        return self.engine.logits_of(next(iter(load_file(pixels).values())))

    def memory(self) -> dict[str, Any]:
        return self.engine.memory()

    def device(self, device: str, dtype: str) -> dict[str, Any]:
        """What the device is, and its measured peaks in a dtype."""
        from .environment import describe, peaks

        return {"device": describe(device), "peak": peaks(device, dtype)}

    def finish(self) -> None:
        if self.engine is not None:
            self.engine = None
            gc.collect()


def serve(kind: str) -> None:
    """Answers until standard input ends."""
    # Redirect everything that libraries print to standard error.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = Worker(kind)

    def answer(call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        import torch

        with torch.inference_mode():
            return call(**arguments)

    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = {"ok": answer(getattr(worker, request.pop("do")), request)}
        except Exception as error:  # noqa: BLE001: a row says what failed, and the others go on
            reply = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(reply) + "\n")
