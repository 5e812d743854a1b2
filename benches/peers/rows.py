"""The rows that benchmarks write, one JSON object per line: hipvit.bench/1, as `hipvit bench --json` writes it and
`hipvit compare` reads it. Needs Python's standard library alone."""

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

SCHEMA = "hipvit.bench/1"
KINDS = ("cuda", "rocm", "emulated", "cpu")
# Keys that make two rows comparable. A file has one row for each combination and engine.
KEY = ("engine", "model", "batch", "dtype")


def quantile(ascending: Sequence[float], fraction: float) -> float:
    """The nearest-rank quantile: one of the values."""
    return ascending[max(math.ceil(fraction * len(ascending)), 1) - 1]


def times(milliseconds: Iterable[float], batch: int) -> dict[str, float]:
    """TIMES of the schema."""
    ascending = sorted(milliseconds)
    if not ascending or not all(math.isfinite(value) and value > 0 for value in ascending):
        raise ValueError("times must be positive and at least one")
    median = statistics.median(ascending)
    return {
        "runs": len(ascending),
        "mean_ms": statistics.fmean(ascending),
        "min_ms": ascending[0],
        "p50_ms": median,
        "p90_ms": quantile(ascending, 0.90),
        "p99_ms": quantile(ascending, 0.99),
        "images_per_s": 1e3 * batch / median,
    }


def combine(repetitions: Sequence[dict | None], batch: int) -> dict | None:
    """TIMES over interleaved repetitions: the median of each figure, the least of the minima, all runs."""
    if not repetitions or any(of is None for of in repetitions):
        return None
    combined = {name: statistics.median(of[name] for of in repetitions) for name in ("mean_ms", "p50_ms", "p90_ms", "p99_ms")}
    return {
        "runs": sum(of["runs"] for of in repetitions),
        "min_ms": min(of["min_ms"] for of in repetitions),
        **combined,
        "images_per_s": 1e3 * batch / combined["p50_ms"],
    }


def noise(medians: Sequence[float]) -> float | None:
    """Half the range of the repetitions' end-to-end medians, relative to their median. One repetition does not tell."""
    if len(medians) < 2:
        return None
    return (max(medians) - min(medians)) / 2 / statistics.median(medians)


def row(
    *,
    engine: str,
    engine_version: str,
    model: str,
    batch: int,
    dtype: str,
    threads: int,
    options: dict[str, Any],
    device: dict[str, Any],
    environment: dict[str, Any],
    end_to_end: Sequence[dict],
    device_only: Sequence[dict | None],
    flops_per_image: float | None,
    peak: dict[str, float | None] | None = None,
    memory: dict[str, float | None] | None = None,
    power: dict[str, float | None] | None = None,
) -> dict[str, Any]:
    """A row, from TIMES of each interleaved repetition; what is unknown is null."""
    if device["kind"] not in KINDS:
        raise ValueError(f"device kind {device['kind']!r} is not one of {', '.join(KINDS)}")
    whole, inner = combine(end_to_end, batch), combine(device_only, batch)
    if whole is None:
        raise ValueError("a row needs end-to-end times")
    primary = inner or whole
    medians = [of["p50_ms"] for of in end_to_end]
    peak = {name: (peak or {}).get(name) for name in ("datasheet_tflops", "measured_tflops", "datasheet_gbps", "measured_gbps")}
    power = {name: (power or {}).get(name) for name in ("busy_percent", "watts", "joules_per_image", "gflops_per_watt", "clock_mhz")}
    if flops_per_image and power["joules_per_image"]:
        power["gflops_per_watt"] = flops_per_image / power["joules_per_image"] / 1e9
    names = ("peak_bytes", "weights_bytes", "activations_bytes", "pool_efficiency", "fragmentation")

    def mfu(tflops: float | None) -> float | None:
        known = flops_per_image and tflops
        return flops_per_image * primary["images_per_s"] / (tflops * 1e12) if known else None

    return {
        "schema": SCHEMA,
        "engine": engine,
        "engine_version": engine_version,
        "model": model,
        "batch": batch,
        "dtype": dtype,
        "threads": threads,
        "options": options,
        "device": device,
        "environment": environment,
        "end_to_end": whole,
        "device_only": inner,
        "flops_per_image": flops_per_image,
        "peak": peak,
        "mfu_datasheet": mfu(peak["datasheet_tflops"]),
        "mfu_measured": mfu(peak["measured_tflops"]),
        "gbps": None,
        "memory": {name: (memory or {}).get(name) for name in names},
        "power": power,
        "copy_in": {"gbps": None, "link_peak_gbps": None},
        "steps": None,
        "repeats": medians,
        "noise": noise(medians),
    }


def failed(*, engine: str, model: str, batch: int, dtype: str, device: dict, environment: dict, error: str) -> dict[str, Any]:
    """A row of an engine that could not run."""
    return {
        "schema": SCHEMA,
        "engine": engine,
        "model": model,
        "batch": batch,
        "dtype": dtype,
        "device": device,
        "environment": environment,
        "error": " ".join(error.split()),
    }


def with_repeats(repetitions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One row from another program's rows, one a repetition: the last one's facts, and the times over all."""
    last = repetitions[-1]
    errors = [row["error"] for row in repetitions if row.get("error")]
    if errors:
        return {**last, "error": errors[0]}
    whole = combine([row["end_to_end"] for row in repetitions], last["batch"])
    inner = combine([row.get("device_only") for row in repetitions], last["batch"])
    medians = [row["end_to_end"]["p50_ms"] for row in repetitions]
    merged = {**last, "end_to_end": whole, "device_only": inner, "repeats": medians, "noise": noise(medians)}
    # Use the figures and times of its own repetition.
    scale = (last["device_only"] if inner else last["end_to_end"])["p50_ms"] / (inner or whole)["p50_ms"]
    for name in ("mfu_datasheet", "mfu_measured", "gbps"):
        if isinstance(last.get(name), (int, float)):
            merged[name] = last[name] * scale
    return merged


def key(row: dict[str, Any]) -> tuple:
    """Key of which a file has one row."""
    return (*(row.get(name) for name in KEY), (row.get("device") or {}).get("kind"))


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a file; none if it is not there."""
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise SystemExit(f"{path}:{number}: {error}") from None
        if not isinstance(value, dict) or value.get("schema") != SCHEMA:
            raise SystemExit(f"{path}:{number}: not a row of {SCHEMA}")
        found.append(value)
    return found


def append(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Adds rows to a file, in one write, so that what was measured before stays whatever happens to this run."""
    text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
    with path.open("a") as file:
        file.write(text)
