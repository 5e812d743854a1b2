"""Runs ONNX models in hipvit's command line and in ONNX Runtime, and compares tensors, for onnx_zoo.py and onnx_backend.py."""

import subprocess
import tempfile
from pathlib import Path

import numpy


class Refused(Exception):
    """hipvit reported an error."""


def hipvit(command: list[str], model: Path, inputs: dict[str, numpy.ndarray], limit: float = 600) -> dict[str, numpy.ndarray]:
    """hipvit's outputs by name. Raises `Refused` with the error's text, or `TimeoutError`."""
    with tempfile.TemporaryDirectory() as scratch:
        arguments = []
        for number, (name, value) in enumerate(inputs.items()):
            path = Path(scratch) / f"{number}.npy"
            numpy.save(path, value)
            arguments += ["--input", f"{name}={path}"]
        results = Path(scratch) / "results"
        try:
            ran = subprocess.run([*command, str(model), *arguments, "-o", str(results)], capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"took longer than {limit:.0f} s") from None
        if ran.returncode != 0:
            # An error with several lines is escaped, since a model's names are in it.
            text = ran.stderr.strip().replace(str(model), model.name).replace("\\n", "\n")
            raise Refused(text or f"exit status {ran.returncode}")
        return {path.stem: numpy.load(path) for path in results.glob("*.npy")}


def named(results: dict[str, numpy.ndarray], name: str) -> numpy.ndarray | None:
    """An output by its name in the model. hipvit's files have `_` for characters that file names cannot have."""
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name).lstrip(".")
    return results.get(name, results.get(safe))


def runtime(path: Path, inputs: dict[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
    """ONNX Runtime's outputs on the CPU, by name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    taken = {value.name for value in session.get_inputs()}
    names = [output.name for output in session.get_outputs()]
    results = session.run(names, {name: value for name, value in inputs.items() if name in taken})
    return dict(zip(names, results, strict=True))


def difference(results: dict[str, numpy.ndarray], expected: dict[str, numpy.ndarray]) -> float:
    """The largest difference as a part of the output's largest value, over all outputs; infinite if a shape differs."""
    worst = 0.0
    for name, value in expected.items():
        result = named(results, name)
        if result is None or result.shape != value.shape:
            return float("inf")
        if value.size == 0:
            continue
        value, result = value.astype(numpy.float64), result.astype(numpy.float64)
        scale = numpy.abs(value).max() or 1.0
        error = numpy.abs(result - value).max() / scale
        worst = max(worst, float(error) if numpy.isfinite(error) else float("inf"))
    return worst
