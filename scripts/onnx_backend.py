"""Runs the node tests of the onnx package in hipvit, and counts those that pass, that hipvit refuses, and that are wrong.

    python scripts/onnx_backend.py --hipvit target/release/hipvit
    python scripts/onnx_backend.py --only 'test_resize_*' --verbose

The tests come from the package's own generators, for the ops of `OPS` and operator sets 11 to 24. A node's shapes, axes, weights and other
parameters are initialisers, as in exported models: the generators make every operand an input. Exits 1 if a result is wrong.
Needs the packages of scripts/requirements.txt. See also: onnx_zoo.py, whole models.
"""

import argparse
import collections
import copy
import fnmatch
import sys
import tempfile
import warnings
from pathlib import Path

import numpy
import onnx
from onnx.backend.test.case.node import collect_testcases

from onnx_runner import Refused, difference, hipvit, named, runtime

ROOT = Path(__file__).resolve().parent.parent
OLDEST, NEWEST = 11, 24

UNARY = """Abs Acos Acosh Asin Asinh Atan Atanh Cast CastLike Ceil Celu Clip Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity IsInf
IsNaN LeakyRelu Log LogSoftmax Mish Neg Not PRelu Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Swish
Tan Tanh ThresholdedRelu""".split()
BINARY = "Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or Pow Sub Sum Where Xor".split()
REDUCTIONS = """ArgMax ArgMin CumSum GlobalAveragePool GlobalMaxPool ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin
ReduceProd ReduceSum ReduceSumSquare TopK""".split()
SHAPES = """Concat Constant ConstantOfShape DepthToSpace Expand Flatten Gather GatherElements GatherND OneHot Pad Range Reshape ScatterElements ScatterND
Shape Size Slice SpaceToDepth Split Squeeze Tile Transpose Trilu Unsqueeze""".split()
LAYERS = """Attention AveragePool BatchNormalization Conv ConvTranspose DequantizeLinear Einsum Gemm GridSample GroupNormalization GRU InstanceNormalization
LayerNormalization LpNormalization LSTM MatMul MaxPool NonMaxSuppression QuantizeLinear RMSNormalization Resize RotaryEmbedding""".split()
OPS = {*UNARY, *BINARY, *REDUCTIONS, *SHAPES, *LAYERS}

# Ops whose later operands are data. All other ops have one operand of data, and parameters.
DATA = {
    **dict.fromkeys(BINARY, 9), **dict.fromkeys(("Concat", "Einsum", "Gather", "GatherElements", "GatherND", "GridSample", "MatMul"), 9),
    "Attention": 9, "RotaryEmbedding": 3, "NonMaxSuppression": 2, "ScatterElements": 3, "ScatterND": 3, "PRelu": 1, "CastLike": 2, "Gemm": 1,
    "Range": 0, "ConstantOfShape": 0,
}
ELEMENTS = {"float16", "float32", "float64", "int32", "int64", "uint8", "int8", "int16", "uint16", "uint32", "bool"}


def with_parameters(case) -> tuple[onnx.ModelProto, dict[str, numpy.ndarray]]:
    """The test's model with parameters as initialisers, and the values of the inputs that are left."""
    model = copy.deepcopy(case.model)
    values = dict(zip((value.name for value in model.graph.input), case.data_sets[0][0], strict=True))
    if len(model.graph.node) == 1:
        node = model.graph.node[0]
        for name in node.input[DATA.get(node.op_type, 1) :]:
            # An operand may be given twice.
            if name in values and name not in node.input[: DATA.get(node.op_type, 1)]:
                model.graph.initializer.append(onnx.numpy_helper.from_array(numpy.asarray(values.pop(name)), name))
        kept = [value for value in model.graph.input if value.name in values]
        del model.graph.input[:]
        model.graph.input.extend(kept)
    return model, {name: numpy.asarray(value) for name, value in values.items()}


def close(result: numpy.ndarray, expected: numpy.ndarray, case) -> bool:
    """Whether a result is within the test's own tolerance. The generators round half precision more than once."""
    rtol = 2e-3 if expected.dtype == numpy.float16 else case.rtol
    return numpy.allclose(result, expected.astype(numpy.float64), rtol=rtol, atol=case.atol, equal_nan=True)


def as_runtime(path: Path, results: dict, inputs: dict) -> bool:
    """Whether ONNX Runtime computes what hipvit does, where a test expects something else."""
    try:
        return difference(results, runtime(path, inputs)) < 1e-5
    except Exception:  # noqa: BLE001
        return False


def run(case, command: list[str], directory: Path) -> tuple[str, str]:
    """Whether the test passes, is refused or is wrong, and why."""
    arrays = [array for operands in case.data_sets[0] for array in operands]
    if any(str(getattr(array, "dtype", "none")) not in ELEMENTS for array in arrays):
        return "not run", "element types or sequences that NumPy files do not have"
    model, inputs = with_parameters(case)
    path = directory / "model.onnx"
    path.write_bytes(model.SerializeToString())
    if not inputs:
        return "not run", "no input is left"
    try:
        results = hipvit(command, path, inputs, limit=60)
    except Refused as refusal:
        return "refused", str(refusal)
    except TimeoutError as error:
        return "wrong", str(error)
    for output, expected in zip(model.graph.output, case.data_sets[0][1], strict=True):
        result = named(results, output.name)
        if result is None or result.shape != expected.shape:
            return "wrong", f"{output.name} has shape {getattr(result, 'shape', None)}, expected {expected.shape}"
        if expected.dtype.kind in "iub":
            if not numpy.array_equal(result.astype(numpy.int64), expected.astype(numpy.int64)):
                return "wrong", f"{output.name} differs: {result.flatten()[:6]}, expected {expected.flatten()[:6]}"
        elif not close(result, expected, case):
            if as_runtime(path, results, inputs):
                return "as runtime", "differs from the test as ONNX Runtime does"
            worst = numpy.abs(result - expected.astype(numpy.float64)).max()
            return "wrong", f"{output.name} differs by {worst:.1e}: {result.flatten()[:4]}, expected {expected.flatten()[:4]}"
    return "pass", ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--hipvit", default=str(ROOT / "target/release/hipvit"), help="the program")
    parser.add_argument("--options", default="--device cpu", help="options of `hipvit run`")
    parser.add_argument("--only", default="*", help="names of tests that match this pattern")
    parser.add_argument("--verbose", action="store_true", help="print each test that does not pass")
    parser.add_argument("--table", type=Path, help="write the counts by op in Markdown, as ZOO/backend.md for the coverage page")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    command = [*arguments.hipvit.split(), "run", *arguments.options.split()]
    counts = collections.defaultdict(collections.Counter)
    reasons = collections.defaultdict(collections.Counter)
    with tempfile.TemporaryDirectory() as directory:
        for case in collect_testcases(None):
            ops = {node.op_type for node in case.model.graph.node}
            opset = max((entry.version for entry in case.model.opset_import if entry.domain in ("", "ai.onnx")), default=99)
            domains = {node.domain for node in case.model.graph.node}
            if not ops <= OPS or domains - {"", "ai.onnx"} or not OLDEST <= opset <= NEWEST or not fnmatch.fnmatch(case.name, arguments.only):
                continue
            op = next(iter(ops)) if len(case.model.graph.node) == 1 else "expanded functions"
            outcome, reason = run(case, command, Path(directory))
            counts[op][outcome] += 1
            if outcome != "pass":
                reasons[op][reason.splitlines()[-1][:160]] += 1
                if arguments.verbose or outcome == "wrong":
                    print(f"{case.name}: {outcome}: {reason}", flush=True)
    columns = ("pass", "as runtime", "refused", "wrong", "not run")
    rows = [(op, sum(counter.values()), *(counter[column] for column in columns)) for op, counter in sorted(counts.items())]
    rows.append(("all", *(sum(row[column] for row in rows) for column in range(1, 7))))
    print(f"{'op':24} {'tests':>6} " + " ".join(f"{column:>10}" for column in columns))
    for op, *numbers in rows:
        print(f"{op:24} {numbers[0]:6} " + " ".join(f"{number:10}" for number in numbers[1:]))
    if arguments.table:
        lines = ["| op | tests | pass | as ONNX Runtime | refused | wrong | not run |", "|---|---|---|---|---|---|---|"]
        # Ops whose tests all pass are in the last row only.
        lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows if row[1] != row[2] or row is rows[-1]]
        arguments.table.write_text("\n".join(lines) + "\n")
    sys.exit(rows[-1][5] > 0)


if __name__ == "__main__":
    main()
