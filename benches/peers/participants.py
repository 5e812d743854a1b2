"""The engines as the coordinator sees them: a worker process for each peer, and hipvit's program. All have the same methods;
each may raise Failed, whose text becomes the row's `error`."""

import json
import os
import random
import select
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

from . import rows
from .worker import spread


class Failed(Exception):
    """An engine could not do something; the others go on."""


class Missing(Failed):
    """An engine is not installed."""


class Peer:
    """An engine in a worker, which is started again if it ended."""

    def __init__(self, name: str, device: str, threads: int):
        self.name, self.target, self.threads = name, device, threads
        self.process: subprocess.Popen | None = None
        # Longest preparation so far in seconds.
        self.longest = 0.0

    def start(self) -> None:
        command = [sys.executable, str(Path(__file__).parent), "--worker", self.name]
        # Libraries read these variables at their start.
        variables = {**os.environ, "OMP_NUM_THREADS": str(self.threads), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables)
        try:
            hello = self.ask("hello", 300)
        except Failed as error:
            raise Missing(str(error)) from None
        self.version, self.libraries = hello["version"], hello["libraries"]

    def ask(self, what: str, limit: float = 600, **arguments: Any) -> Any:
        """An answer within `limit` seconds, or the worker is ended."""
        if self.process is None:
            self.start()
        try:
            self.process.stdin.write(json.dumps({"do": what, **arguments}).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise self.ended() from None
        line, until = b"", time.monotonic() + limit
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], max(until - time.monotonic(), 0))
            if not ready:
                self.stop()
                raise Failed(f"{what} took more than {limit:.0f} s")
            read = os.read(self.process.stdout.fileno(), 1 << 16)
            if not read:
                raise self.ended()
            line += read
        reply = json.loads(line)
        if "error" in reply:
            raise Failed(reply["error"])
        return reply["ok"]

    def ended(self) -> Failed:
        code = self.process.wait()
        self.process = None
        return Failed(f"the process of {self.name} ended with code {code}")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def takes(self, model: Path) -> bool:
        return True

    def prepare(self, model: Path, batch: int, dtype: str, limit: float) -> None:
        start = time.monotonic()
        try:
            self.facts = self.ask(
                "prepare", limit, model=str(model), batch=batch, dtype=dtype, device=self.target, threads=self.threads
            )
        except Failed:
            # Only the end of the process reliably frees what a failed preparation leaves on the device.
            self.stop()
            raise
        finally:
            self.longest = max(self.longest, time.monotonic() - start)

    def run(self, seconds: float, runs: int | None, least: int, last: bool) -> dict[str, Any]:
        return self.ask("run", seconds=seconds, runs=runs, least=least)

    def logits(self, noise: "Noise") -> list[float]:
        return self.ask("logits", pixels=str(noise.pixels))

    def finish(self) -> None:
        if self.process is not None:
            self.ask("finish")

    def row(self, repetitions: list[dict], shared: dict[str, Any], device: dict, environment: dict, power_seconds: float) -> dict:
        """`shared` has the row's facts that do not depend on the engine."""
        memory = self.ask("memory")
        power = {}
        if power_seconds and device["kind"] != "cpu":
            power = self.ask("power", seconds=power_seconds, bus=device.get("pci"))
        return rows.row(
            engine=self.name,
            engine_version=self.version,
            threads=self.threads,
            options=self.facts["options"],
            device=device,
            environment={**environment, "libraries": self.libraries},
            end_to_end=[of["end_to_end"] for of in repetitions],
            device_only=[of["device_only"] for of in repetitions],
            memory=memory,
            power=power,
            **{"flops_per_image": self.facts["flops_per_image"], **shared},
        )


class Noise:
    """A random image of a model's input size as a file, and its pixel values as hipvit preprocesses it."""

    def __init__(self, folder: Path, size: int = 224):
        self.image, self.pixels = folder / "noise.png", folder / "noise.safetensors"
        lines = random.Random(16)
        raw = b"".join(b"\0" + lines.randbytes(3 * size) for _ in range(size))

        def chunk(name: bytes, data: bytes) -> bytes:
            return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

        head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
        png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
        self.image.write_bytes(png)


class Hipvit:
    """hipvit's program; a repetition is a process of its own."""

    name = "hipvit"

    def __init__(self, program: str, device: str, threads: int, options: list[str], power_seconds: float = 0.0):
        self.loads: dict[Path, bool] = {}
        self.program, self.options, self.threads, self.power_seconds = program, options, threads, power_seconds
        self.target = "cpu" if device == "cpu" else f"hip:{(device.partition(':')[2] or '0')}"
        self.longest = 0.0

    def call(self, *arguments: Any, limit: float = 600) -> str:
        command = [self.program, *map(str, arguments)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit, stdin=subprocess.DEVNULL)
        except OSError as error:
            raise Missing(f"{self.program}: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise Failed(f"hipvit {arguments[0]} took more than {limit:.0f} s") from None
        if done.returncode:
            raise Failed(f"hipvit {arguments[0]}: {done.stderr.strip() or done.returncode}")
        return done.stdout

    def start(self) -> None:
        self.call("--version", limit=60)

    @staticmethod
    def file(model: Path) -> Path:
        """What hipvit loads."""
        return model

    def takes(self, model: Path) -> bool:
        """False for a directory of another architecture that has the model as model.onnx too."""
        if not (model / "model.onnx").is_file():
            return True
        if model not in self.loads:
            try:
                self.call("inspect", "--model", model)
                self.loads[model] = True
            except Failed:
                self.loads[model] = False
        return self.loads[model]

    def bench(self, runs: int, limit: float, facts: bool) -> dict[str, Any]:
        """A row; with power and the device's peaks if `facts`."""
        model, batch, dtype = self.cell
        once = ["--power-seconds", self.power_seconds] if facts else ["--power-seconds", 0, "--no-peaks"]
        output = self.call(
            "bench", "--model", model, "--batch", batch, "--dtype", dtype, "--device", self.target, "--threads", self.threads,
            "--runs", runs, "--json", *once, *self.options, limit=limit,
        )
        found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        if len(found) != 1 or found[0].get("schema") != rows.SCHEMA:
            raise Failed(f"hipvit bench wrote {len(found)} rows, or one that is not of {rows.SCHEMA}")
        if found[0].get("error"):
            raise Failed(found[0]["error"])
        return found[0]

    def prepare(self, model: Path, batch: int, dtype: str, limit: float) -> None:
        """The first run compiles its kernels, where there are none in the cache, and tells how long runs take."""
        self.cell = (self.file(model), batch, dtype)
        start = time.monotonic()
        try:
            self.facts = self.bench(5, limit, False)
        finally:
            self.longest = max(self.longest, time.monotonic() - start)

    def run(self, seconds: float, runs: int | None, least: int, last: bool) -> dict[str, Any]:
        once = self.facts["end_to_end"]["p50_ms"] / 1e3
        return self.bench(runs or spread(seconds, once, least, 1000), 600, last)

    def logits(self, noise: Noise) -> list[float]:
        model, _, dtype = self.cell
        self.call("preprocess", noise.image, "--model", model, "--output", noise.pixels)
        output = self.call("classify", noise.image, "--model", model, "--dtype", dtype, "--device", self.target, "--json", "--logits")
        return json.loads(output)["logits"]

    def finish(self) -> None:
        """Each run was a process."""

    def stop(self) -> None:
        """Nothing is left running."""

    def row(self, repetitions: list[dict], shared: dict[str, Any], device: dict, environment: dict, power_seconds: float) -> dict:
        return {**rows.with_repeats(repetitions), "engine": self.name}


class HipvitOnnx(Hipvit):
    """hipvit on a directory's model.onnx."""

    name = "hipvit-onnx"

    @staticmethod
    def file(model: Path) -> Path:
        return model / "model.onnx"

    def takes(self, model: Path) -> bool:
        return self.file(model).is_file()
