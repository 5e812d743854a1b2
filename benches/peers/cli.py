"""The command line, and the order in which the engines take turns."""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import rows
from .participants import Failed, Hipvit, HipvitOnnx, Missing, Noise, Peer

PEERS = ("pytorch-eager", "pytorch-compile", "pytorch-max-autotune", "onnxruntime", "openvino", "tensorrt", "migraphx")
# Largest difference of a logit, relative to the largest logit. Above it, the peer computed something else. It is
# several times the rounding error of the dtype with random weights.
TOLERANCE = {"f32": 1e-3, "f16": 2e-2, "bf16": 1e-1}
# Tolerance of a model in FP8 in any dtype: a small difference before an activation is rounded may become a sixteenth.
# In PyTorch alone, bf16 instead of f32 in the other ops changes the logits by up to 14 %, and 1e-6 of the input by 7 %
# (ViT-B/16, random weights).
FLOAT8_TOLERANCE = 2.5e-1


def listed(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def numbers(text: str) -> list[int]:
    return [positive(part) for part in listed(text)]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    about = "Times hipvit and its peers on one device, taking turns, and writes one JSON row for each."
    parser = argparse.ArgumentParser(prog="benches/peers", description=about)
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL_DIR", help="as timm saves them; see random_model.py")
    parser.add_argument("--batch", type=numbers, default=[1, 8], metavar="N,…", help="batch sizes (default 1,8)")
    parser.add_argument("--dtype", type=listed, default=["f32"], metavar="DTYPE,…", help="of f32, f16, bf16 (default f32)")
    parser.add_argument("--engines", type=listed, metavar="ENGINE,…", help=f"of {', '.join(PEERS)} (default: those that are installed, tensorrt and compiled ones too)")
    parser.add_argument("--hipvit", metavar="PROGRAM", help="hipvit's program, which takes turns with the peers")
    parser.add_argument("--hipvit-option", action="append", default=[], metavar="OPTION", help="for hipvit bench, as --hipvit-option=--hip-graphs=off; may be repeated")
    parser.add_argument("--device", help="cpu, cuda or cuda:N, also for AMD GPUs (default: the first GPU, else the CPU)")
    parser.add_argument("--threads", type=positive, default=os.cpu_count())
    parser.add_argument("--repeat", type=positive, default=3, help="interleaved repetitions (default 3)")
    parser.add_argument("--seconds", type=float, default=1.0, help="for one repetition of one engine (default 1)")
    parser.add_argument("--runs", type=positive, help="in a repetition, instead of --seconds")
    parser.add_argument("--power-seconds", type=float, default=2.0, help="for which power is measured; 0: not at all")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="start nothing that would probably end later; exit with 3 if something is left, which the same command continues")
    parser.add_argument("--prepare-limit", type=float, default=900.0, metavar="SECONDS", help="for one engine to compile a model")
    parser.add_argument("--output", type=Path, default=Path("peers.jsonl"), metavar="FILE", help="rows are added to it; what it has already is not measured again")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        return options
    if not options.models:
        parser.error("name a model directory; benches/peers/random_model.py writes some")
    for model in options.models:
        if not (model / "config.json").is_file():
            parser.error(f"{model}/config.json is not there")
    for dtype in options.dtype:
        if dtype not in TOLERANCE:
            parser.error(f"{dtype} is not one of {', '.join(TOLERANCE)}")
    for engine in options.engines or []:
        if engine not in PEERS:
            parser.error(f"{engine} is not one of {', '.join(PEERS)}; hipvit is named by --hipvit")
    return options


@dataclass
class Cell:
    """A combination that all engines are timed on before the next one starts."""

    model: Path
    name: str
    batch: int
    dtype: str

    def __str__(self) -> str:
        return f"{self.name}, batch {self.batch}, {self.dtype}"


def configuration(model: Path) -> dict[str, Any]:
    return json.loads((model / "config.json").read_text())


def is_quantized(model: Path) -> bool:
    return "quantization_config" in configuration(model)


def architecture(model: Path) -> str:
    name = configuration(model).get("architecture") or model.name
    return f"{name} fp8" if is_quantized(model) else name


@dataclass
class Coordinator:
    options: argparse.Namespace
    participants: list[Any]
    device: dict[str, Any]
    environment: dict[str, Any]
    peaks: dict[str, dict]
    started: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Seconds of the budget."""
        return float("inf") if self.options.budget is None else self.options.budget - (time.monotonic() - self.started)

    def expected(self, participants: list[Any]) -> float:
        """How long a cell takes, by the slowest preparations so far, or a guess for compilers that did not run yet."""
        repetition = 3 * self.options.seconds * self.options.repeat + self.options.power_seconds * 1.5
        slow = {"pytorch-max-autotune": 90.0, "pytorch-compile": 40.0, "tensorrt": 90.0, "migraphx": 120.0}
        return sum((of.longest or slow.get(of.name, 10.0)) + repetition for of in participants)

    def measure(self, cell: Cell, participants: list[Any], noise: Noise) -> list[dict]:
        """Rows of one cell. First all prepare, one after the other; then they take turns."""
        done: list[dict] = []
        errors: dict[str, str] = {}
        names: dict[str, str] = {}

        def attempt(of: Any, what, *arguments):
            try:
                return what(*arguments)
            except Failed as error:
                errors[of.name] = str(error)
                print(f"  {of.name}: {error}", file=sys.stderr)
                return None

        for of in participants:
            limit = min(self.options.prepare_limit, max(self.left(), 30))
            attempt(of, of.prepare, cell.model, cell.batch, cell.dtype, limit)

        def ready():
            return [of for of in participants if of.name not in errors]

        differences = self.compare_logits(cell, ready(), noise, attempt, errors)
        repetitions: dict[str, list] = {of.name: [] for of in participants}
        for repetition in range(self.options.repeat):
            last = repetition + 1 == self.options.repeat
            for of in ready():
                least = 10 if self.device["kind"] != "cpu" else 3
                of_one = attempt(of, of.run, self.options.seconds, self.options.runs, least, last)
                if of_one is not None:
                    repetitions[of.name].append(of_one)
        shared = {"model": cell.name, "batch": cell.batch, "dtype": cell.dtype, "peak": self.peaks.get(cell.dtype)}
        for of in participants:
            if of.name not in errors:
                made = attempt(of, of.row, repetitions[of.name], shared, self.device, self.environment, self.options.power_seconds)
                if made is not None:
                    if of.name in differences:
                        made["options"] = {**(made.get("options") or {}), **differences[of.name]}
                    if isinstance(of, Hipvit):
                        made["model"] = cell.name
                        # The peers' utilisation uses the same peak and number of operations.
                        for name in ("peak", "flops_per_image"):
                            if made.get(name):
                                shared[name] = made[name]
                    done.append(made)
            if of.name in errors:
                facts = {name: shared[name] for name in ("model", "batch", "dtype")}
                done.append(rows.failed(engine=of.name, device=self.device, environment=self.environment, error=errors[of.name], **facts))
            attempt(of, of.finish)
        return done

    def compare_logits(self, cell: Cell, participants: list[Any], noise: Noise, attempt, errors: dict[str, str]) -> dict[str, dict]:
        """Each peer's largest difference from hipvit's logits of one image; a peer too far off gets an error."""
        first = participants[0].name if participants else ""
        logits = {of.name: attempt(of, of.logits, noise) for of in participants if first.startswith("hipvit")}
        reference = logits.pop(first, None)
        if reference is None:
            return {}
        largest = max(map(abs, reference))
        found = {}
        for name, values in logits.items():
            if values is None:
                continue
            differences = [abs(a - b) for a, b in zip(values, reference, strict=True)]
            # `max` may ignore NaN.
            difference = max(differences) if all(map(math.isfinite, differences)) else math.nan
            print(f"  {name}: logits differ from hipvit's by at most {difference:.2e}, the largest is {largest:.2f}", file=sys.stderr)
            tolerance = FLOAT8_TOLERANCE if cell.name.endswith(" fp8") else TOLERANCE[cell.dtype]
            if not difference <= tolerance * largest:
                errors[name] = f"logits differ from hipvit's by {difference:.2e}, the largest is {largest:.2f}"
            found[name] = {"logits_difference_from_hipvit": difference, "largest_logit": largest}
        return found


def show(cell: Cell, made: list[dict]) -> None:
    """A line for each engine, the fastest first."""
    def milliseconds(row: dict) -> float:
        return ((row.get("device_only") or row.get("end_to_end") or {}).get("p50_ms")) or float("inf")

    print(cell)
    best = min(map(milliseconds, made), default=0)
    for row in sorted(made, key=milliseconds):
        if row.get("error"):
            print(f"  {row['engine']:22} {row['error'][:100]}")
            continue
        text = f"end to end {row['end_to_end']['p50_ms']:9.3f} ms"
        if row.get("device_only"):
            text += f", device {row['device_only']['p50_ms']:9.3f} ms"
        print(f"  {row['engine']:21} {text}, {milliseconds(row) / best:5.2f}x, noise {100 * (row.get('noise') or 0):.1f} %", flush=True)


def pick(options: argparse.Namespace) -> tuple[str, list[Peer]]:
    """Returns the device and the installed peers."""
    device = options.device
    if device is None:
        code = "import torch; print('cuda:0' if torch.cuda.is_available() else 'cpu')"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        if done.returncode:
            sys.exit("PyTorch is not installed")
        device = done.stdout.strip()
    device = "cuda:0" if device == "cuda" else device
    installed = []
    for name in options.engines or PEERS:
        peer = Peer(name, device, options.threads)
        try:
            peer.start()
        except Missing as error:
            peer.stop()
            print(f"{name} is not installed: {error}", file=sys.stderr)
            continue
        installed.append(peer)
    return device, installed


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.worker:
        from .worker import serve

        serve(options.worker)
        return 0
    present = {rows.key(row) for row in rows.read(options.output)}
    device, participants = pick(options)
    if options.hipvit:
        forms = [form(options.hipvit, device, options.threads, options.hipvit_option, options.power_seconds) for form in (Hipvit, HipvitOnnx)]
        try:
            forms[0].start()
        except Failed as error:
            sys.exit(str(error))
        participants = forms + participants
    peers = [of for of in participants if isinstance(of, Peer)]
    if not peers:
        sys.exit("none of the peers is installed")
    try:
        return coordinate(options, device, participants, peers, present)
    finally:
        for of in participants:
            of.stop()


def coordinate(options: argparse.Namespace, device: str, participants: list[Any], peers: list[Peer], present: set) -> int:
    from .environment import environment

    peaks, described = {}, None
    for dtype in options.dtype:
        answer = peers[0].ask("device", device=device, dtype=dtype)
        peaks[dtype], described = answer["peak"], answer["device"]
    shared = environment(peers[0].libraries)
    coordinator = Coordinator(options, participants, described, shared, peaks)
    print(f"{described['name']}; {shared['os']}; driver {shared['driver']}; {options.threads} threads; "
          + ", ".join(f"{name} {version}" for name, version in shared["libraries"].items()), flush=True)
    left, failures = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for model in options.models:
            name = architecture(model)
            for batch in options.batch:
                for dtype in options.dtype:
                    cell = Cell(model, name, batch, dtype)
                    missing = [of for of in participants if of.takes(model) and (of.name, name, batch, dtype, described["kind"]) not in present]
                    if not missing:
                        continue
                    if coordinator.left() < coordinator.expected(missing):
                        left += 1
                        print(f"{cell}: not started, {max(coordinator.left(), 0):.0f} s of the budget are left", flush=True)
                        continue
                    made = coordinator.measure(cell, missing, Noise(Path(folder)))
                    rows.append(options.output, made)
                    failures += sum(bool(row.get("error")) for row in made)
                    show(cell, made)
    if left:
        print(f"{left} cells are left: run the same command again")
        return 3
    return 1 if failures else 0
