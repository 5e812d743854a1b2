"""Exports every architecture of timm's registry to ONNX, runs it in hipvit, and compares the outputs with ONNX Runtime's.

    python scripts/onnx_registry.py run registry.jsonl --jobs 8 --hipvit target/release/hipvit
    python scripts/onnx_registry.py run registry.jsonl --only 'swin*' --again
    python scripts/onnx_registry.py table registry.jsonl                # the registry's part of docs/onnx-coverage.md

Exports with random weights by torch's TorchScript exporter, or by the one of `torch.export` where that fails, small models first, each in
a process on one core. A model's files are deleted once it has been compared, and a line is appended to registry.jsonl. `run` continues where it stopped. Needs the packages of
scripts/requirements.txt and, in all, about 12 hours of one core.
See also: onnx_zoo.py, the smallest architecture of each module by both exporters.
"""

import argparse
import collections
import fnmatch
import json
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

from onnx_zoo import EXPORTERS, MANY_IMAGES, ROOT, brief, check_one, export_one, failure, forked

HEADING = "## timm's registry"
# Of an architecture that cannot be built without memory for its weights.
UNKNOWN_SIZE = 100_000_000


def compare(name: str, directory: Path, arguments) -> dict:
    """Exports an architecture by the first exporter that can, and runs it in both runtimes."""
    messages = []
    for exporter in reversed(EXPORTERS):
        try:
            report = export_one(name, exporter, directory, exact=False)
        except Exception as error:  # noqa: BLE001
            messages.append(f"{exporter}: {brief(error)}")
            continue
        result = check_one(report | {"directory": directory}, arguments)
        if result["stage"] == "differs":
            # Statistics of more images, beside the network in double precision.
            report = export_one(name, exporter, directory, MANY_IMAGES)
            result = check_one(report | {"directory": directory}, arguments)
        kept = {key: value for key, value in result.items() if key not in ("rows", "program", "seconds")}
        return {"exporter": exporter} | kept
    return {"stage": "not exported", "message": "; ".join(messages)}


def rows(path: Path) -> dict[str, dict]:
    """The newest line of each architecture."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def run(arguments) -> None:
    import onnxruntime  # noqa: F401
    import onnxscript  # noqa: F401
    import timm
    import torch

    import onnx_models

    torch.set_num_threads(1)
    os.environ["RAYON_NUM_THREADS"] = "1"
    done = {} if arguments.again else rows(arguments.results)
    names = [name for name in architectures() if name not in done]
    names = [name for name in names if any(fnmatch.fnmatch(name, only) for only in arguments.only or ["*"])]
    with multiprocessing.get_context("fork").Pool(arguments.jobs) as pool:
        sizes = dict(zip(names, pool.map(onnx_models.parameters, names, chunksize=4), strict=True))
    waiting = sorted(names, key=lambda name: sizes[name] or UNKNOWN_SIZE, reverse=True)
    running = {}
    with arguments.results.open("a") as results:
        while waiting or running:
            while waiting and len(running) < arguments.jobs:
                size = sizes[waiting[-1]] or UNKNOWN_SIZE
                if running and sum(job[2] for job in running.values()) + size > arguments.parameters:
                    break
                name, scratch = waiting.pop(), Path(tempfile.mkdtemp(dir=arguments.scratch))

                def work(name=name, scratch=scratch):
                    (scratch / "result.json").write_text(json.dumps(compare(name, scratch, arguments)))

                running[forked(scratch / "log", work)] = (name, scratch, size, time.time())
            time.sleep(0.05)
            for pid, (name, scratch, size, start) in list(running.items()):
                seconds = time.time() - start
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    error = failure(status, scratch / "log")
                    result = {"stage": "not exported", "message": error} if error else json.loads((scratch / "result.json").read_text())
                elif seconds > arguments.limit:
                    os.killpg(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    result = {"stage": "time", "message": f"took longer than {arguments.limit} s"}
                else:
                    continue
                del running[pid]
                shutil.rmtree(scratch)
                module = timm.models._registry._model_to_module[name]
                row = {"name": name, "module": module, "parameters": size, "torch": torch.__version__} | result | {"seconds": round(seconds, 1)}
                results.write(json.dumps(row) + "\n")
                results.flush()
                print(f"{name}: {row['stage']} {row.get('difference', '')} {row.get('message', '')[:300]} ({seconds:.0f} s)", flush=True)


def architectures() -> list[str]:
    """timm's architectures, without its own `test_` models."""
    import timm

    return [name for name in timm.list_models() if not name.startswith("test_")]


def section(found: dict[str, dict]) -> str:
    """The registry's part of the coverage page."""
    import timm

    names = architectures()
    found = {name: found[name] for name in names if name in found}
    stages = collections.Counter(row["stage"] for row in found.values())
    exported = stages["agrees"] + stages["differs"] + stages["load"]
    torch = " and ".join(sorted({row["torch"].partition("+")[0] for row in found.values()}))
    dynamo = sum(row.get("exporter") == "dynamo" for row in found.values())
    slow = f" {stages['time']} took longer than the time limit." if stages["time"] else ""
    lines = [
        HEADING,
        "",
        f"timm {timm.__version__} has {len(names):,} architectures. `scripts/onnx_registry.py` exports them by the TorchScript exporter of torch {torch}, or by",
        f"torch.export where that fails ({dynamo:,}). Of {len(found):,} that were run, {exported:,} are exported, {exported - stages['load']:,} of these load, and {stages['agrees']:,} agree with ONNX Runtime.{slow}",
        f"The other {len(names) - len(found):,}, the largest, were not run. Of those that were run, these are not among the ones that agree:",
        "",
        "| architecture | module | result |",
        "|---|---|---|",
    ]
    words = {"load": "refused", "differs": "differs", "time": "time limit", "not exported": "not exported"}
    for name, row in sorted(found.items()):
        if row["stage"] != "agrees":
            message = row["message"].strip().splitlines()[-1][:200].replace("|", "\\|")
            lines.append(f"| {name} | {row['module']} | {words[row['stage']]}: {message} |")
    return "\n".join(lines) + "\n"


def table(arguments) -> None:
    """Replaces the registry's part of the coverage page."""
    text = arguments.page.read_text()
    before, _, rest = text.partition(f"{HEADING}\n")
    after = rest[rest.index("\n## ") + 1 :] if "\n## " in rest else ""
    arguments.page.write_text(before.rstrip("\n") + "\n\n" + section(rows(arguments.results)) + ("\n" + after if after else ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("run", help="export, run and compare")
    command.add_argument("results", type=Path)
    command.add_argument("--hipvit", default=str(ROOT / "target/release/hipvit"), help="the program")
    command.add_argument("--only", action="append", help="architectures that match this pattern")
    command.add_argument("--again", action="store_true", help="run what has a line already")
    command.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    command.add_argument("--parameters", type=float, default=2e9, help="parameters of all running models; each takes up to 20 bytes of memory")
    command.add_argument("--scratch", type=Path, help="folder for the models")
    command.add_argument("--limit", type=int, default=600, help="seconds for each model")
    command.set_defaults(run=run, options="--device cpu", rows=None)
    command = commands.add_parser("table", help="write the registry's part of the coverage page")
    command.add_argument("results", type=Path)
    command.add_argument("page", type=Path, nargs="?", default=ROOT / "docs/onnx-coverage.md")
    command.set_defaults(run=table)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
