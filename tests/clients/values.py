"""tritonclient sends normalised pixel values in FP32, FP16 and BF16 to `hipvit serve --pixel-values`; each is compared with the
image itself. Usage: values.py http|grpc ADDRESS MODEL IMAGE PIXEL_VALUES, where the last is what `hipvit preprocess` wrote."""

import json
import struct
import sys
from pathlib import Path

import ml_dtypes
import numpy as np

protocol, address, model, image, values = sys.argv[1:]
if protocol == "http":
    import tritonclient.http as triton
else:
    import tritonclient.grpc as triton


def safetensor(path):
    data = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    tensor = header["pixel_values"]
    begin, end = tensor["data_offsets"]
    return np.frombuffer(data[8 + length + begin : 8 + length + end], np.float32).reshape(tensor["shape"])


def main():
    client = triton.InferenceServerClient(address)
    pixels = safetensor(values)
    pixels = pixels.reshape((-1, *pixels.shape[-3:]))
    file = triton.InferInput("image", [1], "BYTES")
    file.set_data_from_numpy(np.array([Path(image).read_bytes()], dtype=np.object_))
    wanted = client.infer(model, [file]).as_numpy("logits")
    scale = np.abs(wanted).max()
    # The input's rounding, which the model spreads; f32 differs by where the normalisation is folded in.
    types = (("FP32", np.float32, 2e-5), ("FP16", np.float16, 2e-2), ("BF16", ml_dtypes.bfloat16, 1e-1))
    for datatype, dtype, tolerance in types:
        tensor = triton.InferInput("pixel_values", list(pixels.shape), datatype)
        tensor.set_data_from_numpy(pixels.astype(dtype))
        got = client.infer(model, [tensor]).as_numpy("logits")
        error = np.abs(got - wanted).max() / scale
        assert error <= tolerance, (datatype, error)
        print(f"tritonclient {protocol}: {datatype} pixel values differ by {error:.1e} of the largest logit")


main()
