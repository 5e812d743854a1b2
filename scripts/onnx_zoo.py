"""Exports models to ONNX by both exporters of torch, with ONNX Runtime's results, and measures how many hipvit loads and how many agree.

    python scripts/onnx_zoo.py export zoo                               # the smallest architecture of each timm module, and transformers'
    python scripts/onnx_zoo.py export zoo resnet18 hf_segformer --exporter dynamo
    python scripts/onnx_zoo.py ops zoo                                  # which ops occur in how many models
    python scripts/onnx_zoo.py check zoo --hipvit target/release/hipvit
    python scripts/onnx_backend.py --table zoo/backend.md --hipvit target/release/hipvit
    python scripts/onnx_zoo.py table zoo docs/onnx-coverage.md

Every command continues where it stopped. A model is a directory `zoo/<name>.<exporter>` with `model.onnx`, `in.<name>.npy`,
`out.<name>.npy` and `export.json`; `check` adds `check.json`. Needs the packages of scripts/requirements.txt, and hours.
See also: onnx_models.py, the models; onnx_registry.py, every architecture of timm; onnx_goldens.py, small models that are committed; timm_coverage.py.
"""

import argparse
import collections
import fnmatch
import json
import os
import re
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy

from onnx_runner import Refused, difference, hipvit, runtime

ROOT = Path(__file__).resolve().parent.parent
EXPORTERS = ("dynamo", "torchscript")
EXPORT_BATCH, RUN_BATCH = 2, 3
TOLERANCE = 2e-5
# ONNX Runtime's error above which batch norms get the statistics of more images.
ILL_CONDITIONED, MANY_IMAGES = 1e-3, 32


def export_model(case, exporter: str, path: Path, batch: int, opset: int | None = None, dynamic: bool = True) -> None:
    """Writes the ONNX file as a user of torch.onnx would; the first axis of each input is the batch if `dynamic`."""
    import torch

    inputs = case.inputs(batch)
    names = {"input_names": list(inputs), "output_names": case.outputs, "opset_version": opset}
    if exporter == "dynamo":
        axes = tuple({0: torch.export.Dim("batch")} for _ in inputs)
        varargs = any(str(kind.kind) == "VAR_POSITIONAL" for kind in signature(case.model))
        shapes = ((axes,) if varargs else axes) if dynamic else None
        program = torch.onnx.export(case.model, tuple(inputs.values()), dynamo=True, dynamic_shapes=shapes, verbose=False, **names)
        program.save(str(path), external_data=True)
    else:
        axes = {name: {0: "batch"} for name in [*inputs, *case.outputs]} if dynamic else None
        torch.onnx.export(case.model, tuple(inputs.values()), str(path), dynamo=False, dynamic_axes=axes, **names)


def signature(model):
    import inspect

    return inspect.signature(model.forward).parameters.values()


def facts(path: Path) -> dict:
    """Number of nodes, ops by number of nodes, and opsets of a model; bodies of functions, If and Loop are counted too."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    counts = collections.Counter()

    def visit(nodes):
        for node in nodes:
            counts[f"{node.domain}.{node.op_type}" if node.domain else node.op_type] += 1
            for attribute in node.attribute:
                for graph in [attribute.g, *attribute.graphs]:
                    visit(graph.node)

    visit(model.graph.node)
    for function in model.functions:
        visit(function.node)
    opsets = {opset.domain or "ai.onnx": opset.version for opset in model.opset_import}
    return {"nodes": sum(counts.values()), "ops": dict(sorted(counts.items())), "opsets": opsets}


def export_one(name: str, exporter: str, directory: Path, images: int = 2, exact: bool = True) -> dict:
    """Exports a model and runs it in ONNX Runtime. The report tells how far the runtime is from torch in double precision, if `exact`."""
    import torch

    import onnx_models

    case = onnx_models.build(name, images)
    report = {"name": name, "module": case.module, "exporter": exporter}
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "model.onnx"
    batch = RUN_BATCH
    start = time.time()
    try:
        with torch.no_grad():
            export_model(case, exporter, path, EXPORT_BATCH)
            report["seconds"] = round(time.time() - start, 1)
        inputs = {name: tensor.numpy() for name, tensor in case.inputs(batch).items()}
        outputs = runtime(path, inputs)
    except Exception as error:  # noqa: BLE001
        report["dynamic_error"] = brief(error)
        batch = EXPORT_BATCH
        with torch.no_grad():
            export_model(case, exporter, path, EXPORT_BATCH, dynamic=False)
        report["seconds"] = round(time.time() - start, 1)
        inputs = {name: tensor.numpy() for name, tensor in case.inputs(batch).items()}
        outputs = runtime(path, inputs)
    report["batch"] = batch
    report |= facts(path)
    for name, value in inputs.items():
        numpy.save(directory / f"in.{name}.npy", value)
    for name, value in outputs.items():
        numpy.save(directory / f"out.{name}.npy", value)
    if not exact:
        return report
    try:
        with torch.no_grad():
            tensors = [tensor.double() if tensor.is_floating_point() else tensor for tensor in case.inputs(batch).values()]
            exact = case.model.double()(*tensors)
        exact = exact if isinstance(exact, (tuple, list)) else [exact]
        exact = {name: value.numpy() for name, value in zip(outputs, exact, strict=True)}
        report["runtime_error"] = difference(outputs, exact)
    except Exception as error:  # noqa: BLE001
        report["double_error"] = brief(error)
    # Batch norms of single pixels amplify rounding without bound if their statistics are of two images.
    if report.get("runtime_error", 0.0) > ILL_CONDITIONED and images < MANY_IMAGES:
        return export_one(case.name, exporter, directory, MANY_IMAGES)
    return report


def brief(error: Exception) -> str:
    """The first line of an error's message that says something, with its type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:400]


def forked(log: Path, work) -> int:
    """Runs `work` in a forked process, its output in `log`. Returns the process's number, which is that of its group."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(out, 1)
        os.dup2(out, 2)
        status = 1
        try:
            work()
            status = 0
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return pid


def failure(status: int, log: Path) -> str | None:
    """Why a forked process failed, or `None`."""
    if os.WIFSIGNALED(status):
        return f"killed by signal {os.WTERMSIG(status)}"
    if status == 0:
        return None
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    # A traceback's message begins at the last line that is neither indented nor a note.
    errors = [line for line in lines if line[:1].isalpha() and "Error" in line.split(":")[0]]
    return (errors or lines or ["no output"])[-1][:400]


def limited(seconds: int, log: Path, work) -> str | None:
    """Runs `work` in a forked process with a time limit, its output in `log`. Returns why it failed, or `None`."""
    pid = forked(log, work)
    deadline = time.time() + seconds
    while time.time() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return failure(status, log)
        time.sleep(0.2)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return f"took longer than {seconds} s"


def export(arguments) -> None:
    import onnxruntime  # noqa: F401
    import onnxscript  # noqa: F401
    import timm
    import torch
    import torch.onnx._internal.exporter._core  # noqa: F401

    import onnx_models
    import onnx_transformers

    torch.set_num_threads(1)
    zoo = arguments.zoo
    zoo.mkdir(parents=True, exist_ok=True)
    names = arguments.names
    if not names:
        names = [*onnx_models.smallest(zoo / "smallest.tsv").values(), *onnx_transformers.MODELS]
    for name in names:
        for exporter in arguments.exporter:
            directory = zoo / f"{name}.{exporter}"
            report = directory / "export.json"
            if report.exists() and not (arguments.retry and "error" in json.loads(report.read_text())):
                continue
            directory.mkdir(parents=True, exist_ok=True)

            def work(name=name, exporter=exporter, directory=directory, report=report):
                report.write_text(json.dumps(export_one(name, exporter, directory), indent=1))

            start = time.time()
            error = limited(arguments.limit, directory / "export.log", work)
            if error:
                module = "transformers" if name.startswith("hf_") else timm.models._registry._model_to_module[name]
                failed = {"name": name, "module": module, "exporter": exporter, "error": error}
                report.write_text(json.dumps(failed, indent=1))
            print(f"{name} {exporter}: {error or 'exported'} ({time.time() - start:.0f} s)", flush=True)
            index(zoo)


def reports(zoo: Path) -> list[dict]:
    """The export reports of a zoo, by name and exporter."""
    return [json.loads(path.read_text()) | {"directory": path.parent} for path in sorted(zoo.glob("*/export.json"))]


def index(zoo: Path) -> None:
    """Writes INDEX.tsv, a row per export, and OPS.tsv, the ops by the number of models that have them."""
    rows = ["path\texporter\tmodule\topset\tnodes\tbatch\tseconds\truntime_error\tops\terror\n"]
    models, nodes = collections.defaultdict(set), collections.Counter()
    by_exporter = collections.Counter()
    examples = {}
    for report in reports(zoo):
        ops = report.get("ops", {})
        opset = report.get("opsets", {}).get("ai.onnx", "")
        batch = {RUN_BATCH: "dynamic", EXPORT_BATCH: "fixed"}.get(report.get("batch"), "")
        cells = [report["directory"].name, report["exporter"], report["module"], opset, report.get("nodes", ""), batch]
        cells += [report.get("seconds", ""), f"{report.get('runtime_error', float('nan')):.1e}", ",".join(ops)]
        rows.append("\t".join(map(str, [*cells, report.get("error", "")])) + "\n")
        for op, count in ops.items():
            models[op].add(report["name"])
            nodes[op] += count
            by_exporter[op, report["exporter"]] += 1
            examples.setdefault(op, report["directory"].name)
    replace(zoo / "INDEX.tsv", "".join(rows))
    rows = ["op\tmodels\t" + "\t".join(EXPORTERS) + "\tnodes\texample\n"]
    for op in sorted(models, key=lambda op: (-len(models[op]), op)):
        cells = [op, len(models[op]), *(by_exporter[op, exporter] for exporter in EXPORTERS), nodes[op], examples[op]]
        rows.append("\t".join(map(str, cells)) + "\n")
    replace(zoo / "OPS.tsv", "".join(rows))


def replace(path: Path, text: str) -> None:
    """Writes a file that others may be reading."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)


def check_one(report: dict, arguments) -> dict:
    """Runs an exported model in hipvit and compares the outputs with ONNX Runtime's."""
    directory = report["directory"]
    inputs = {path.name[3:-4]: numpy.load(path) for path in sorted(directory.glob("in.*.npy"))}
    expected = {path.name[4:-4]: numpy.load(path) for path in sorted(directory.glob("out.*.npy"))}
    rows = arguments.rows if report["batch"] == RUN_BATCH else None
    inputs = {name: value[:rows] for name, value in inputs.items()}
    expected = {name: value[:rows] for name, value in expected.items()}
    command = [*arguments.hipvit.split(), "run", *arguments.options.split()]
    start = time.time()
    result = {"rows": rows or report["batch"], "program": Path(command[0]).name}
    try:
        results = hipvit(command, directory / "model.onnx", inputs, arguments.limit)
    except Refused as refusal:
        result |= {"stage": "load", "message": str(refusal)}
    except TimeoutError as error:
        result |= {"stage": "time", "message": str(error)}
    else:
        error = difference(results, expected)
        # A network that amplifies rounding does so in both runtimes: the allowance follows ONNX Runtime's own error.
        allowed = max(TOLERANCE, 4 * report.get("runtime_error", 0.0))
        result |= {"difference": error, "allowed": allowed, "stage": "agrees" if error <= allowed else "differs"}
        if result["stage"] == "differs":
            shapes = [f"{name} {list(value.shape)}" for name, value in sorted(results.items())]
            result["message"] = f"differs by {error:.1e}, allowed {allowed:.1e}; outputs {', '.join(shapes)}"
    return result | {"seconds": round(time.time() - start, 1)}


def check(arguments) -> None:
    for report in reports(arguments.zoo):
        if "error" in report or not any(fnmatch.fnmatch(report["directory"].name, only) for only in arguments.only):
            continue
        path = report["directory"] / "check.json"
        if path.exists() and (not arguments.retry or json.loads(path.read_text())["stage"] == "agrees") and not arguments.again:
            continue
        result = check_one(report, arguments)
        path.write_text(json.dumps(result, indent=1))
        message = result.get("message", "").replace("\n", " ")[:300]
        print(f"{report['directory'].name}: {result['stage']} {result.get('difference', '')} {message} ({result['seconds']} s)", flush=True)
        failures(arguments.zoo)
    failures(arguments.zoo)


def failures(zoo: Path) -> None:
    """Writes FAILURES.tsv, a row for each model that is refused or differs."""
    rows = ["model\tstage\tmessage\n"]
    for path in sorted(zoo.glob("*/check.json")):
        result = json.loads(path.read_text())
        if result["stage"] != "agrees":
            message = result["message"].replace("\n", " | ").replace("\t", " ")[:2000]
            rows.append(f"{path.parent.name}\t{result['stage']}\t{message}\n")
    replace(zoo / "FAILURES.tsv", "".join(rows))


def missing(message: str) -> str:
    """Ops that an error of hipvit names, with the reason where there is one op only; otherwise the error's last line."""
    found = {}
    for op, reason in re.findall(r"^.*?node `[^`]*` \(([\w.]+), opset \d+[^)]*\): (.*)$", message, re.MULTILINE):
        if reason != "an operand could not be computed":
            found.setdefault(op, reason)
    if not found:
        return message.strip().splitlines()[-1][:160] if message.strip() else ""
    return "; ".join(f"{op}: {reason[:120]}" for op, reason in found.items()) if len(found) < 3 else ", ".join(found)


def outcome(report: dict) -> tuple[str, str]:
    """The cell of a model and exporter in the table, and what is missing."""
    if "error" in report:
        return "not exported", ""
    path = report["directory"] / "check.json"
    if not path.exists():
        return "not run", ""
    result = json.loads(path.read_text())
    match result["stage"]:
        case "agrees":
            mark = " †" if result.get("program") == "reference" else ""
            return f"{result['difference']:.0e}{mark}", ""
        case "differs":
            return f"**differs by {result['difference']:.0e}**", ""
        case "time":
            return "too slow", result["message"]
        case _:
            return "refused", missing(result["message"])


def table(arguments) -> None:
    """Writes the coverage page from the reports."""
    models = collections.defaultdict(dict)
    for report in reports(arguments.zoo):
        models[report["module"], report["name"]][report["exporter"]] = report
    rows, counts = [], collections.Counter()
    for (module, name), by_exporter in sorted(models.items(), key=lambda item: (item[0][0] == "transformers", item[0])):
        cells, notes = [], []
        for exporter in EXPORTERS:
            cell, note = outcome(by_exporter[exporter]) if exporter in by_exporter else ("", "")
            cells.append(cell)
            if note and note not in notes:
                notes.append(note)
            group = "transformers" if module == "transformers" else "timm"
            exported = exporter in by_exporter and "error" not in by_exporter[exporter]
            runs = exported and cell != "not run"
            counts[group, exporter, "exported"] += exported
            counts[group, exporter, "loads"] += runs and cell != "refused"
            counts[group, exporter, "agrees"] += runs and cell[0].isdigit()
        note = "; ".join(notes).replace("|", "\\|").replace("\n", " ")
        label = name.removeprefix("hf_") if module == "transformers" else f"{module} | {name}"
        rows.append((module == "transformers", f"| {label} | {cells[0]} | {cells[1]} | {note} |"))
    modules = collections.defaultdict(set)
    for (module, _), by_exporter in models.items():
        for exporter, report in by_exporter.items():
            cell = outcome(report)[0]
            modules[module] |= {"exported"} if cell != "not exported" else set()
            modules[module] |= {"loads"} if cell[0] in "0123456789*" else set()
            modules[module] |= {"agrees"} if cell[0].isdigit() else set()
            modules[module] |= {"differs"} if cell[0] == "*" else set()
    of_timm = [found for module, found in modules.items() if module != "transformers"]
    totals = {kind: sum(kind in found for found in of_timm) for kind in ("exported", "loads", "agrees", "differs")}
    summary = f"""Of {len(of_timm)} modules of timm, {totals["exported"]} can be exported by one of the exporters or both, {totals["loads"]} of these load, and
{totals["agrees"]} agree with ONNX Runtime; {totals["differs"]} differ."""
    lines = [*PAGE.strip().splitlines(), "", *summary.splitlines(), ""]
    lines += ["| models | exporter | exported | load | agree |", "|---|---|---|---|---|"]
    for group in ("timm", "transformers"):
        for exporter in EXPORTERS:
            numbers = [str(counts[group, exporter, kind]) for kind in ("exported", "loads", "agrees")]
            lines.append(f"| {group} | {exporter} | {' | '.join(numbers)} |")
    lines += ["", "## timm's modules", "", "| module | architecture | dynamo | torchscript | missing |", "|---|---|---|---|---|"]
    lines += [row for transformer, row in rows if not transformer]
    lines += ["", "## transformers", "", "| model | dynamo | torchscript | missing |", "|---|---|---|---|"]
    lines += [row for transformer, row in rows if transformer]
    registry = arguments.zoo / "registry.jsonl"
    if registry.exists():
        # That module imports this one.
        import onnx_registry

        lines += ["", *onnx_registry.section(onnx_registry.rows(registry)).splitlines()]
    backend = arguments.zoo / "backend.md"
    if backend.exists():
        lines += ["", *NODE_TESTS.strip().splitlines(), "", *backend.read_text().splitlines()]
    arguments.page.write_text("\n".join(lines) + "\n")


PAGE = """
# ONNX coverage

This page shows which exported models hipvit loads, and how far its outputs are from ONNX Runtime's. `scripts/onnx_zoo.py` writes it.

The models are the smallest architecture of each module of timm 1.0.31, and small configurations of transformers' models, with random weights,
exported by both exporters of torch 2.15 (`dynamo=True` and `dynamo=False`) at their default operator set with a dynamic batch. A number is the
largest difference from ONNX Runtime in f32 on the CPU, as a part of the largest output. A model agrees if the number is at most 2e-5, or four times
ONNX Runtime's own difference from torch in double precision where a network amplifies rounding. "Not exported" means that torch's exporter or
ONNX Runtime failed. "†" marks results of the graph's reference implementation (`crates/onnx/examples/reference.rs`) instead of the engine.
"""

NODE_TESTS = """
## Node tests of the onnx package

`scripts/onnx_backend.py` generates the onnx package's own tests of the ops that hipvit knows, for operator sets 11 to 24. The table has the ops with
tests that do not pass. "As ONNX Runtime" counts tests whose expected results ONNX Runtime does not compute either. "Not run" counts element
types that NumPy files do not have.
"""


def ops(arguments) -> None:
    index(arguments.zoo)
    print((arguments.zoo / "OPS.tsv").read_text(), end="")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("export", help="export models, and run them in ONNX Runtime")
    command.add_argument("zoo", type=Path)
    command.add_argument("names", nargs="*", help="timm architectures, or models of onnx_transformers.py")
    command.add_argument("--exporter", action="append", choices=EXPORTERS)
    command.add_argument("--retry", action="store_true", help="try failed exports again")
    command.add_argument("--limit", type=int, default=600, help="seconds for each export")
    command.set_defaults(run=export)
    command = commands.add_parser("ops", help="count ops over the exported models")
    command.add_argument("zoo", type=Path)
    command.set_defaults(run=ops)
    command = commands.add_parser("check", help="run the exported models in hipvit")
    command.add_argument("zoo", type=Path)
    command.add_argument("--hipvit", default=str(ROOT / "target/release/hipvit"), help="the program")
    command.add_argument("--options", default="--device cpu", help="options of `hipvit run`")
    command.add_argument("--only", action="append", help="names of directories that match this pattern")
    command.add_argument("--rows", type=int, help="use the first rows of the batch only, where the batch is dynamic")
    command.add_argument("--retry", action="store_true", help="check again what failed")
    command.add_argument("--again", action="store_true", help="check everything again")
    command.add_argument("--limit", type=int, default=600, help="seconds for each model")
    command.set_defaults(run=check)
    command = commands.add_parser("table", help="write the coverage page")
    command.add_argument("zoo", type=Path)
    command.add_argument("page", type=Path, nargs="?", default=ROOT / "docs/onnx-coverage.md")
    command.set_defaults(run=table)
    arguments = parser.parse_args()
    if arguments.command == "check":
        arguments.only = arguments.only or ["*"]
    if arguments.command == "export" and not arguments.exporter:
        arguments.exporter = list(EXPORTERS)
    arguments.run(arguments)


if __name__ == "__main__":
    main()
