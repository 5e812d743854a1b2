"""What several GPUs of one host give, in one run: data, tensor and pipeline parallelism beside one GPU, and all-reduces beside nccl-tests.

    cargo build --release --bin hipvit && cargo bench --bench all_reduce --no-run
    python3 benches/scaling.py models --hipvit target/release/hipvit --all-reduce target/release/deps/all_reduce-… --nccl-tests all_reduce_perf

Models that are missing in the folder are written there, with random weights. Every row is of `hipvit bench`, which measures the first GPU
alone and then all GPUs in one process; milliseconds are medians of repetitions, end to end from pixels in host memory. The rows go to
--output as JSON lines. nccl-tests is NVIDIA's program (rccl-tests is AMD's): it times collectives by themselves, and gives bus bandwidth.

Needs numpy and safetensors, and timm for models that random_model.py does not know.
"""

import argparse
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from peers import random_model

VIT_B, VIT_L, VIT_H, SO400M = (
    "vit_base_patch16_224", "vit_large_patch16_224", "vit_huge_patch14_224", "vit_so400m_patch14_siglip_384")


@dataclass
class Case:
    """A command, and what distinguishes it in the table."""

    label: str
    model: str
    batches: str
    options: list[str]


THROUGHPUT = ["--in-flight", "3"]
CASES = [
    *(Case("data", model, "64,256", THROUGHPUT) for model in (VIT_B, VIT_L)),
    *(Case("tensor", model, "1,8", ["--parallel", "tensor"]) for model in (VIT_L, SO400M, VIT_H)),
    Case("tensor, library", VIT_L, "1,8", ["--parallel", "tensor", "--all-reduce", "library"]),
    Case("tensor", VIT_L, "64", ["--parallel", "tensor"]),
    *(Case(f"pipeline, graphs {graphs}", model, "64", ["--parallel", "pipeline", "--hip-graphs", graphs, *THROUGHPUT])
      for model in (VIT_L, VIT_H) for graphs in ("off", "auto")),
]


def write(folder: Path, model: str) -> None:
    """A model directory with random weights, unless it is there."""
    if (folder / model / "config.json").exists():
        return
    if model in random_model.MODELS:
        random_model.write(folder / model, model)
        return
    import timm
    import torch
    from timm.models import save_for_hf

    torch.manual_seed(16)
    save_for_hf(timm.create_model(model), str(folder / model), safe_serialization=True)


def bench(program: str, folder: Path, case: Case, options: argparse.Namespace) -> list[dict]:
    """The rows, or an empty list after an error."""
    command = [program, "bench", str(folder / case.model), "--device", options.device, "--dtype", options.dtype, "--batch", case.batches,
               *case.options, "--repeat", str(options.repeat), "--seconds", str(options.seconds), "--power-seconds", "0", "--no-peaks", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{case.label}, {case.model}: {done.stderr.strip()}", file=sys.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def print_rows(case: Case, rows: list[dict]) -> None:
    """A line for each batch size: one GPU beside all."""
    alone = {row["batch"]: row for row in rows if not row.get("devices")}
    for row in rows:
        if not row.get("devices") or row.get("error"):
            continue
        one, all_of_them = alone[row["batch"]]["end_to_end"], row["end_to_end"]
        device = [times["device_only"]["p50_ms"] if times.get("device_only") else float("nan") for times in (alone[row["batch"]], row)]
        print(f"| {case.label} | {case.model} | {row['batch']} | {one['p50_ms']:.3g} | {all_of_them['p50_ms']:.3g} | {device[0]:.3g} | "
              f"{device[1]:.3g} | {one['images_per_s']:,.0f} | {all_of_them['images_per_s']:,.0f} | {row['scaling']['factor']:.2f} | "
              f"{100 * (row.get('noise') or 0):.1f} |", flush=True)


def nccl_tests(program: str, gpus: int) -> None:
    """Microseconds and bus bandwidth of bf16 sums, in captured graphs and without."""
    for graphs in ("0", "20"):
        command = [program, "-d", "bfloat16", "-b", "1K", "-e", "256M", "-f", "4", "-g", str(gpus), "-c", "0", "-w", "5", "-n", "20", "-G", graphs]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        print(f"\nnccl-tests, {'captured graphs' if graphs != '0' else 'eager'}: bytes, us, bus bandwidth in GB/s")
        for line in done.stdout.splitlines():
            # Bytes, count, type, operation, root; then time, algorithm's and bus bandwidth out of place.
            fields = line.split()
            if len(fields) > 7 and re.fullmatch(r"\d+", fields[0]):
                print(f"{fields[0]:>12} {fields[5]:>10} {fields[7]:>8}")
        if done.returncode:
            print(done.stderr[-2000:] or done.stdout[-2000:], file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="the folder of models")
    parser.add_argument("--hipvit", required=True, metavar="PROGRAM")
    parser.add_argument("--device", default="hip:all")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a repetition")
    parser.add_argument("--only", default="", help="cases whose label or model has this text")
    parser.add_argument("--all-reduce", metavar="PROGRAM", help="the benchmark of this name")
    parser.add_argument("--nccl-tests", metavar="PROGRAM", help="all_reduce_perf")
    parser.add_argument("--gpus", type=int, default=2, help="for nccl-tests")
    parser.add_argument("--output", type=Path, default=Path("scaling.jsonl"))
    options = parser.parse_args()
    if options.all_reduce:
        subprocess.run([options.all_reduce, "--bench"], check=False)
    if options.nccl_tests:
        nccl_tests(options.nccl_tests, options.gpus)
    print("\n| parallelism | model | batch | one GPU, ms | all, ms | one, device | all, device | one GPU, images/s | all, images/s | × | noise, % |")
    print("|" + " --- |" * 11, flush=True)
    with options.output.open("a") as output:
        for case in CASES:
            if options.only not in f"{case.label} {case.model}":
                continue
            write(options.folder, case.model)
            rows = bench(options.hipvit, options.folder, case, options)
            for row in rows:
                output.write(json.dumps({**row, "case": case.label}) + "\n")
            print_rows(case, rows)


if __name__ == "__main__":
    main()
