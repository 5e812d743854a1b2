"""Writes tests/data/onnx/open_extents.onnx: a model whose batch, height and width are open.

    python scripts/onnx_open_extents.py

`y` is the mean of each channel of 2·x over the image, and `indices` doubles the int64 input `ids`.
Needs the packages of scripts/requirements.txt.
"""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

FILE = Path(__file__).resolve().parent.parent / "tests" / "data" / "onnx" / "open_extents.onnx"


def main() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["x", "two"], ["doubled"], name="double"),
            helper.make_node("GlobalAveragePool", ["doubled"], ["pooled"], name="pool"),
            helper.make_node("Flatten", ["pooled"], ["y"], name="flatten", axis=1),
            helper.make_node("Add", ["ids", "ids"], ["indices"], name="indices"),
        ],
        "open_extents",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "height", "width"]),
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", 2]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3]),
            helper.make_tensor_value_info("indices", TensorProto.INT64, ["batch", 2]),
        ],
        [helper.make_tensor("two", TensorProto.FLOAT, [], [2.0])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.producer_name = "hipvit"
    onnx.checker.check_model(model)
    FILE.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, FILE)


if __name__ == "__main__":
    main()
