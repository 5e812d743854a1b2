"""Writes tests/golden/convolutions.json: results of ONNX Runtime for convolutions, pools and Resize, channels last.

    python scripts/golden_convolutions.py

Inputs are a formula of the index, so that only attributes, shapes and results are stored. Needs onnx and onnxruntime.
See also: crates/graph/src/tests/windows.rs, which reads the file.
"""

import json
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parent.parent


def values(shape: list[int], seed: int) -> np.ndarray:
    """Multiples of 1/64 between -1 and 1: exact in f32."""
    index = np.arange(np.prod(shape), dtype=np.int64)
    mixed = (index * 40503 + seed * 30011) % 65521
    return ((mixed * mixed % 65521 % 129 - 64) / 64).astype(np.float32).reshape(shape)


def to_first(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))


def run(op: str, inputs: list[np.ndarray | None], **attributes) -> np.ndarray:
    given = {f"i{n}": x for n, x in enumerate(inputs) if x is not None}
    names = ["" if x is None else f"i{n}" for n, x in enumerate(inputs)]
    node = helper.make_node(op, names, ["y"], **{k: v for k, v in attributes.items() if v is not None})
    types = {np.dtype("float32"): TensorProto.FLOAT, np.dtype("int64"): TensorProto.INT64}
    graph = helper.make_graph(
        [node],
        op,
        [helper.make_tensor_value_info(name, types[x.dtype], x.shape) for name, x in given.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, given)[0].transpose(0, 2, 3, 1)


def pads(padding: list[list[int]]) -> list[int]:
    (top, bottom), (left, right) = padding
    return [top, left, bottom, right]


def convolution(op: str, x: list[int], features: int, kernel: list[int], **more) -> dict:
    spec = {"kernel": kernel, "stride": [1, 1], "dilation": [1, 1], "padding": [[0, 0], [0, 0]], "groups": 1, "bias": True}
    spec |= more
    groups = spec["groups"]
    weight = [features, *kernel, x[3] // groups]
    # [K, C/groups, kh, kw], or for the transpose [C, K/groups, kh, kw].
    w = to_first(values(weight, 2))
    if op == "ConvTranspose":
        w = w.reshape(groups, features // groups, x[3] // groups, *kernel).swapaxes(1, 2)
        w = w.reshape(x[3], features // groups, *kernel)
    attributes = dict(kernel_shape=kernel, strides=spec["stride"], dilations=spec["dilation"], pads=pads(spec["padding"]), group=groups)
    if op == "ConvTranspose":
        attributes["output_padding"] = spec["output_padding"]
    y = run(op, [to_first(values(x, 1)), w, values([features], 3) if spec["bias"] else None], **attributes)
    return {"op": op, **spec, "x": x, "weight": weight, "shape": list(y.shape), "y": y}


def pool(op: str, x: list[int], kernel: list[int], **more) -> dict:
    spec = {"kernel": kernel, "stride": [1, 1], "dilation": [1, 1], "padding": [[0, 0], [0, 0]], "ceil": False, "count_padding": False}
    spec |= more
    y = run(
        op,
        [to_first(values(x, 1))],
        kernel_shape=kernel,
        strides=spec["stride"],
        dilations=spec["dilation"],
        pads=pads(spec["padding"]),
        ceil_mode=int(spec["ceil"]),
        count_include_pad=int(spec["count_padding"]) if op == "AveragePool" else None,
    )
    return {"op": op, **spec, "x": x, "shape": list(y.shape), "y": y}


def resize(x: list[int], mode: str, coordinates: str, size: list[int] | None, scale: list[float] | None = None, **more) -> dict:
    """With a scale, the size is the scaled size, rounded down."""
    spec = {"mode": mode, "coordinates": coordinates, "scale": scale, "rounding": "round_prefer_floor", "coefficient": -0.75}
    spec |= {"antialias": False, "exclude_outside": False} | more
    y = run(
        "Resize",
        [
            to_first(values(x, 1)),
            None,
            None if scale is None else np.array([1, 1, *scale], dtype=np.float32),
            None if scale is not None else np.array([x[0], x[3], *size], dtype=np.int64),
        ],
        mode=mode,
        coordinate_transformation_mode=coordinates,
        nearest_mode=spec["rounding"] if mode == "nearest" else None,
        cubic_coeff_a=spec["coefficient"] if mode == "cubic" else None,
        antialias=int(spec["antialias"]),
        exclude_outside=int(spec["exclude_outside"]),
    )
    return {"op": "Resize", **spec, "x": x, "shape": list(y.shape), "y": y}


CASES = [
    convolution("Conv", [2, 5, 4, 3], 4, [3, 3], padding=[[1, 1], [1, 1]]),
    convolution("Conv", [1, 9, 8, 2], 3, [4, 2], stride=[3, 2], dilation=[2, 3], padding=[[2, 1], [0, 3]]),
    convolution("Conv", [1, 5, 6, 6], 4, [2, 3], groups=2, bias=False),
    convolution("Conv", [1, 4, 4, 4], 8, [3, 3], padding=[[1, 1], [1, 1]], groups=4),
    convolution("Conv", [2, 1, 11, 4], 2, [1, 5], padding=[[0, 0], [2, 2]], stride=[1, 2]),
    convolution("ConvTranspose", [1, 3, 2, 3], 2, [2, 2], stride=[2, 2], output_padding=[0, 0]),
    convolution("ConvTranspose", [1, 3, 4, 4], 6, [3, 4], stride=[2, 3], dilation=[1, 2], padding=[[1, 0], [2, 1]], groups=2, output_padding=[1, 2]),
    convolution("ConvTranspose", [2, 2, 3, 2], 1, [3, 3], padding=[[1, 1], [1, 1]], output_padding=[0, 0], bias=False),
    pool("MaxPool", [2, 7, 6, 2], [3, 3], stride=[2, 2], padding=[[1, 1], [1, 1]]),
    pool("MaxPool", [1, 6, 7, 2], [2, 2], stride=[2, 2], ceil=True),
    pool("MaxPool", [1, 9, 8, 1], [2, 3], stride=[1, 3], dilation=[3, 2], padding=[[1, 0], [0, 2]], ceil=True),
    # The last window would start in the padding.
    pool("MaxPool", [1, 5, 5, 1], [2, 2], stride=[3, 3], padding=[[1, 1], [1, 1]], ceil=True),
    pool("AveragePool", [1, 7, 6, 2], [3, 3], stride=[2, 2], padding=[[1, 1], [1, 1]]),
    pool("AveragePool", [1, 8, 6, 1], [3, 3], stride=[2, 2], padding=[[1, 1], [1, 1]], ceil=True, count_padding=True),
    pool("AveragePool", [1, 6, 7, 2], [2, 2], stride=[2, 2], ceil=True),
    pool("AveragePool", [1, 9, 8, 1], [2, 3], stride=[1, 3], dilation=[3, 2], padding=[[1, 0], [0, 2]]),
    resize([1, 3, 4, 2], "nearest", "asymmetric", [6, 7], rounding="floor"),
    resize([1, 3, 4, 2], "nearest", "half_pixel", [5, 3]),
    resize([1, 5, 4, 1], "nearest", "half_pixel", None, [0.6, 1.7], rounding="round_prefer_ceil"),
    resize([1, 5, 4, 1], "nearest", "align_corners", [9, 2], rounding="ceil"),
    resize([2, 3, 4, 2], "linear", "half_pixel", [7, 3]),
    resize([1, 4, 5, 1], "linear", "pytorch_half_pixel", [1, 8]),
    resize([1, 4, 5, 1], "linear", "align_corners", [7, 1]),
    resize([1, 4, 5, 1], "linear", "asymmetric", None, [2.3, 0.7]),
    resize([1, 4, 5, 1], "linear", "half_pixel_symmetric", None, [2.3, 0.7]),
    resize([1, 4, 5, 2], "cubic", "half_pixel", [7, 3]),
    resize([1, 4, 5, 1], "cubic", "align_corners", [6, 9], coefficient=-0.5),
    resize([1, 4, 5, 1], "cubic", "half_pixel", [6, 9], exclude_outside=True),
    resize([1, 9, 8, 1], "linear", "half_pixel", [4, 3], antialias=True),
    resize([1, 9, 8, 1], "linear", "half_pixel", [4, 3], antialias=True, exclude_outside=True),
    resize([1, 9, 8, 1], "cubic", "half_pixel", [4, 12], antialias=True, coefficient=-0.5),
    resize([1, 9, 8, 1], "cubic", "half_pixel", [4, 3], antialias=True, coefficient=-0.5, exclude_outside=True),
]


def main() -> None:
    lines = []
    for case in CASES:
        case["y"] = [round(float(y), 6) for y in case["y"].ravel()]
        lines.append(json.dumps(case, separators=(",", ":")))
    path = ROOT / "tests/golden/convolutions.json"
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
