"""Writes tests/golden/onnx_ops: models of one group of operators each, with inputs and ONNX Runtime's outputs.

    python scripts/onnx_ops.py

The models of scripts/onnx_goldens.py are exports of whole networks. These have what no small network exports: recurrent layers, scattering at
computed indices, loops, the operators of ONNX Runtime's optimiser, and non-maximum suppression.
Needs the packages of scripts/requirements.txt.
"""

from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

from onnx_runner import runtime

ROOT = Path(__file__).resolve().parent.parent / "tests" / "golden" / "onnx_ops"
SEED = 5
TYPES = {numpy.dtype("float32"): TensorProto.FLOAT, numpy.dtype("int64"): TensorProto.INT64}


class Model:
    """A graph under construction. Values have the names `v0`, `v1` ..."""

    def __init__(self) -> None:
        self.random = numpy.random.default_rng(SEED)
        self.nodes, self.constants, self.outputs = [], [], []
        self.inputs: dict[str, tuple[numpy.ndarray, list]] = {}
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def uniform(self, *shape: int, spread: float = 1.0) -> numpy.ndarray:
        return self.random.uniform(-spread, spread, shape).astype(numpy.float32)

    def input(self, name: str, value: numpy.ndarray, batch: bool = False) -> str:
        self.inputs[name] = (value, (["batch"] if batch else [value.shape[0]]) + list(value.shape[1:]))
        return name

    def constant(self, value) -> str:
        name = self.name()
        value = numpy.asarray(value)
        self.constants.append(numpy_helper.from_array(value.astype(numpy.float32) if value.dtype == numpy.float64 else value, name))
        return name

    def node(self, op: str, *inputs: str, count: int = 1, output: bool = False, **attributes):
        names = [self.name() for _ in range(count)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        if output:
            self.outputs += names
        return names[0] if count == 1 else names

    def write(self, name: str, opset: int = 18) -> None:
        graph = helper.make_graph(
            self.nodes, name, [helper.make_tensor_value_info(given, TYPES[value.dtype], dims) for given, (value, dims) in self.inputs.items()],
            [helper.make_empty_tensor_value_info(output) for output in self.outputs], self.constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
        model.producer_name = "hipvit"
        path = ROOT / f"{name}.onnx"
        onnx.save(model, path)
        inputs = {given: value for given, (value, _) in self.inputs.items()}
        results = runtime(path, inputs)
        # The types of the outputs, which the runtime infers.
        for output in graph.output:
            output.CopyFrom(helper.make_tensor_value_info(output.name, TYPES[results[output.name].dtype], None))
        model.graph.CopyFrom(graph)
        onnx.save(model, path)
        tensors = {f"input.{given}": value for given, value in inputs.items()}
        save_file(tensors | {f"output.{given}": numpy.ascontiguousarray(value) for given, value in results.items()}, path.with_suffix(".safetensors"))
        print(f"{name}: {len(self.nodes)} nodes, {len(self.outputs)} outputs")


def recurrent() -> None:
    """Layers over [steps, batch, channels] of all directions, with and without biases and first states."""
    m = Model()
    x = m.input("x", m.uniform(3, 7, 5), batch=True)
    steps = m.node("Transpose", x, perm=[1, 0, 2])
    mean = m.node("ReduceMean", x, m.constant([1]), keepdims=0)
    first = m.node("Unsqueeze", mean, m.constant([0]))
    twice = m.node("Concat", first, m.node("Neg", first), axis=0)
    for op, gates, options in (("LSTM", 4, {}), ("GRU", 3, {"linear_before_reset": 1}), ("GRU", 3, {})):
        results = gates - 1
        for direction, units, states in (("forward", 4, []), ("reverse", 5, [first] * (results - 1)), ("bidirectional", 5, [twice] * (results - 1))):
            count = 2 if direction == "bidirectional" else 1
            weights = [m.constant(m.uniform(count, gates * units, width, spread=0.6)) for width in (5, units)]
            bias = m.constant(m.uniform(count, 2 * gates * units)) if direction != "reverse" else ""
            m.node(op, steps, *weights, bias, *([""] + states if states else []), count=results, output=True, hidden_size=units, direction=direction,
                   **options)
    m.write("recurrent")


def scatter() -> None:
    """Scattering and gathering at computed and known indices, and the last of equal extrema."""
    m = Model()
    x = m.input("x", m.uniform(4, 5, 3))
    indices = m.input("indices", numpy.array([[1, 2], [-1, 0], [3, -2], [0, 4]], numpy.int64))
    equal = numpy.array([[1, 2], [3, 0], [1, 2], [1, 2]], numpy.int64)
    updates = m.input("updates", m.uniform(4, 3))
    for reduction in ("none", "add", "mul", "max", "min"):
        m.node("ScatterND", x, indices, updates, output=True, reduction=reduction)
        if reduction != "none":
            m.node("ScatterND", x, m.constant(equal), updates, output=True, reduction=reduction)
    rows = m.input("rows", numpy.array([[[2, 0, 1]], [[3, -1, 0]]], numpy.int64))
    new = m.input("new", m.uniform(2, 1, 3))
    for axis in (0, 1, 2):
        for reduction in ("none", "add", "max"):
            # Columns are three, and rows name up to four slices.
            index = rows if axis < 2 else m.node("Clip", rows, m.constant(-1), m.constant(2))
            m.node("ScatterElements", x, index, new, output=True, axis=axis, reduction=reduction)
    m.node("ScatterElements", x, m.constant([[[2, 2, 1]], [[2, -4, 1]]]), new, output=True, axis=0, reduction="mul")
    number = m.input("number", numpy.array([5, -2, 7, 0], numpy.int64))
    m.node("ScatterElements", m.constant(numpy.arange(6)), m.constant([1, 4, 1, -1]), number, output=True, reduction="add")
    m.node("Identity", number, output=True)
    places = m.node("Clip", number, m.constant(-4), m.constant(4))
    m.node("GatherND", x, m.node("Unsqueeze", places, m.constant([1])), output=True, batch_dims=1)
    m.node("GatherND", x, indices, output=True)
    pairs = numpy.array([[[0, 1], [4, -1]], [[-5, 0], [2, 2]], [[1, 1], [1, 1]], [[3, 2], [0, 0]]], numpy.int64)
    m.node("GatherND", x, m.constant(pairs), output=True, batch_dims=1)
    m.node("GatherND", x, m.node("Mul", m.constant(pairs), m.constant(1)), output=True, batch_dims=1)
    rounded = m.node("Round", m.node("Mul", x, m.constant(numpy.float32(1.5))))
    for op in ("ArgMax", "ArgMin"):
        for last in (0, 1):
            m.node(op, rounded, output=True, axis=1, select_last_index=last, keepdims=last)
    m.write("scatter")


def batched_gather() -> None:
    """Gathering in each image of a batch whose size is open."""
    m = Model()
    x = m.input("x", m.uniform(3, 5, 4), batch=True)
    order = m.node("TopK", m.node("ReduceSum", x, m.constant([2]), keepdims=0), m.constant([2]), count=2, axis=1)[1]
    m.node("GatherND", x, m.node("Unsqueeze", order, m.constant([2])), output=True, batch_dims=1)
    updates = m.node("Slice", x, m.constant([0]), m.constant([2]), m.constant([1]))
    places = m.node("Expand", m.node("Unsqueeze", order, m.constant([2])), m.constant([1, 1, 4]))
    m.node("ScatterElements", x, places, updates, output=True, axis=1, reduction="add")
    m.node("Identity", x, output=True)
    m.write("batched_gather")


def batched_scatter() -> None:
    """Replacing a box of each image of a batch whose size is open, as torch exports `x[:, 1:, 2:5] += y`; and identity matrices."""
    m = Model()
    x = m.input("x", m.uniform(3, 4, 6), batch=True)
    y = m.input("y", m.uniform(3, 3, 3), batch=True)
    shape = m.node("Shape", y)
    batch = m.node("Gather", m.node("Shape", x), m.constant(0))
    ranges = [m.node("Range", m.constant(0), batch, m.constant(1)), m.constant(numpy.arange(1, 4)), m.constant(numpy.arange(2, 5))]
    columns = []
    for axis, values in enumerate(ranges):
        placed = m.node("Reshape", values, m.constant([-1 if at == axis else 1 for at in range(3)]))
        columns.append(m.node("Unsqueeze", m.node("Expand", placed, shape), m.constant([-1])))
    m.node("ScatterND", x, m.node("Concat", *columns, axis=-1), y, output=True)
    for k in (0, 2, -1):
        m.node("Mul", x, m.node("EyeLike", m.constant(numpy.zeros((4, 6), numpy.int64)), k=k, dtype=TensorProto.FLOAT), output=True)
    eye = m.node("EyeLike", m.constant(numpy.zeros((6, 2), numpy.int64)))
    m.node("MatMul", x, m.node("Cast", eye, to=TensorProto.FLOAT), output=True)
    m.write("batched_scatter")


def loop() -> None:
    """Loops with a fixed number of steps, one inside of another."""
    m = Model()
    x = m.input("x", m.uniform(2, 3), batch=True)
    scalar = lambda name, kind: helper.make_tensor_value_info(name, kind, [])  # noqa: E731
    free = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, None)  # noqa: E731
    inner = helper.make_graph(
        [
            helper.make_node("Identity", ["inner_true"], ["inner_condition"]),
            helper.make_node("Mul", ["inner_state", "factor"], ["inner_next"]),
        ],
        "inner", [scalar("inner_step", TensorProto.INT64), scalar("inner_true", TensorProto.BOOL), free("inner_state")],
        [scalar("inner_condition", TensorProto.BOOL), free("inner_next")],
    )
    body = helper.make_graph(
        [
            helper.make_node("Cast", ["step"], ["number"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["state", "number"], ["shifted"]),
            helper.make_node("Loop", ["two", "", "shifted"], ["next"], body=inner),
            helper.make_node("Add", ["next", "x"], ["scanned"]),
            helper.make_node("Less", ["step", "last"], ["condition"]),
        ],
        "body", [scalar("step", TensorProto.INT64), scalar("true", TensorProto.BOOL), free("state")],
        [scalar("condition", TensorProto.BOOL), free("next"), free("scanned")],
    )
    m.constants += [numpy_helper.from_array(numpy.array(value), name) for name, value in (("two", 2), ("last", 2), ("factor", numpy.float32(0.75)))]
    m.node("Loop", m.constant(10), m.constant(True), x, count=2, output=True, body=body)
    m.write("loop")


def fused() -> None:
    """The operators that ONNX Runtime's optimiser writes."""
    m = Model()
    x = m.input("x", m.uniform(2, 6, 8), batch=True)
    skip = m.input("skip", m.uniform(2, 6, 8), batch=True)
    vector = lambda: m.constant(m.uniform(8))  # noqa: E731
    ms = {"domain": "com.microsoft", "output": True}
    m.node("BiasGelu", x, vector(), **ms)
    m.node("FastGelu", x, **ms)
    m.node("FastGelu", x, vector(), **ms)
    m.node("QuickGelu", x, alpha=1.3, **ms)
    m.node("Gelu", x, **ms)
    m.node("FusedMatMul", x, skip, transB=1, alpha=0.5, **ms)
    m.node("FusedMatMul", x, m.constant(m.uniform(8, 5)), alpha=2.0, **ms)
    m.node("SimplifiedLayerNormalization", x, vector(), epsilon=1e-5, output=True)
    m.node("LayerNormalization", x, vector(), vector(), count=3, output=True, axis=2)
    m.node("SkipLayerNormalization", x, skip, vector(), vector(), vector(), epsilon=1e-5, **ms)
    normed = [m.name() for _ in range(2)]
    m.nodes.append(helper.make_node("SkipSimplifiedLayerNormalization", [x, skip, vector()], [normed[0], "", "", normed[1]], domain="com.microsoft",
                                    epsilon=1e-5))
    m.outputs += normed
    m.node("MultiHeadAttention", x, skip, skip, num_heads=2, **ms)
    m.node("MultiHeadAttention", x, skip, x, m.constant(m.uniform(24)), "", m.constant(m.uniform(1, 2, 6, 6)), num_heads=2, scale=0.4, **ms)
    m.node("MultiHeadAttention", x, x, x, num_heads=4, unidirectional=1, **ms)
    m.node("Attention", x, m.constant(m.uniform(8, 24)), m.constant(m.uniform(24)), num_heads=2, **ms)
    m.node("Attention", x, m.constant(m.uniform(8, 20)), m.constant(m.uniform(20)), num_heads=2, qkv_hidden_sizes=[8, 8, 4], unidirectional=1, **ms)
    image = m.node("Unsqueeze", x, m.constant([1]))
    weight = m.constant(m.uniform(3, 1, 3, 3))
    for name, parameters in (("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.2]), ("Clip", [-0.3, 0.6]), ("HardSigmoid", [0.3, 0.4])):
        options = {"activation_params": parameters} if parameters else {}
        m.node("FusedConv", image, weight, m.constant(m.uniform(3)), activation=name, pads=[1, 1, 1, 1], **options, **ms)
    added = m.node("Expand", image, m.constant([1, 3, 1, 1]))
    m.node("FusedConv", image, weight, m.constant(m.uniform(3)), added, activation="Relu", pads=[1, 1, 1, 1], **ms)
    flat = m.node("Flatten", x)
    m.node("FusedGemm", flat, m.constant(m.uniform(48, 4)), m.constant(m.uniform(4)), activation="LeakyRelu", activation_alpha=0.1, alpha=0.5, **ms)
    m.write("fused")


def boxes() -> None:
    """Non-maximum suppression as detectors use it: the selected boxes and scores."""
    m = Model()
    corners = numpy.sort(m.random.uniform(0, 20, (2, 30, 2, 2)), axis=2).reshape(2, 30, 4).astype(numpy.float32)
    b = m.input("boxes", corners, batch=True)
    scores = m.input("scores", m.random.uniform(0, 1, (2, 3, 30)).astype(numpy.float32), batch=True)
    limits = [m.constant(numpy.float32(0.3)), m.constant(numpy.float32(0.4))]
    selected = m.node("NonMaxSuppression", b, scores, m.constant(5), *limits, output=True)
    image = m.node("Gather", selected, m.constant([0]), axis=1)
    box = m.node("Slice", selected, m.constant([2]), m.constant([3]), m.constant([1]))
    of_box = m.node("GatherND", b, m.node("Concat", image, box, axis=1))
    of_score = m.node("GatherND", scores, selected)
    of_class = m.node("Cast", m.node("Gather", selected, m.constant(1), axis=1), to=TensorProto.FLOAT)
    columns = [m.node("Unsqueeze", value, m.constant([1])) for value in (of_score, of_class)]
    m.node("Concat", of_box, *columns, output=True, axis=1)
    m.node("Mul", of_box, m.constant(numpy.float32(0.05)), output=True)
    m.node("NonMaxSuppression", b, scores, m.constant(100), m.constant(numpy.float32(0.5)), output=True, center_point_box=1)
    # No score is above this.
    m.node("NonMaxSuppression", b, scores, m.constant(2), m.constant(numpy.float32(0.5)), m.constant(numpy.float32(2)), output=True)
    m.write("boxes")


def main() -> None:
    ROOT.mkdir(parents=True, exist_ok=True)
    for group in (recurrent, scatter, batched_gather, batched_scatter, loop, fused, boxes):
        group()


if __name__ == "__main__":
    main()
