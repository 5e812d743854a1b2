"""tritonclient asks `hipvit serve --explanation` for what each pixel contributes to a class, and gets what `hipvit explain` has
written. Usage: explanation.py http|grpc ADDRESS MODEL IMAGE CLASS DIR, where DIR is that of `hipvit explain --class CLASS`."""

import sys
from pathlib import Path

import numpy as np

protocol, address, model, image, label, directory = sys.argv[1:]
if protocol == "http":
    import tritonclient.http as triton
    from tritonclient.utils import InferenceServerException
else:
    import tritonclient.grpc as triton
    from tritonclient.utils import InferenceServerException


def explanation_of(client, **parameters):
    file = triton.InferInput("image", [1], "BYTES")
    file.set_data_from_numpy(np.array([Path(image).read_bytes()], dtype=np.object_))
    # Triton's client gives an output no parameters but its own; those of the request stand for those of its outputs.
    outputs = [triton.InferRequestedOutput("explanation"), triton.InferRequestedOutput("logits")]
    return client.infer(model, [file], outputs=outputs, parameters=parameters)


def main():
    client = triton.InferenceServerClient(address)
    # Rounded per channel, and summed in double precision there.
    channels = np.load(Path(directory) / "attribution.npy").astype(np.float64)
    expected = channels.sum(axis=0)
    result = explanation_of(client, **{"class": int(label)})
    got = result.as_numpy("explanation")
    assert got.shape == (1, *expected.shape), got.shape
    assert result.as_numpy("logits").ndim == 2
    error = np.abs(got[0] - expected).max() / np.abs(channels).max()
    assert error <= 4 * np.finfo(np.float32).eps, error
    # Another method is another explanation.
    other = explanation_of(client, **{"class": int(label), "method": "conservative"}).as_numpy("explanation")
    assert np.abs(other[0] - expected).max() > 1e-3 * np.abs(expected).max()
    try:
        explanation_of(client, **{"class": 10**6})
    except InferenceServerException as failure:
        assert "explanation" in failure.message(), failure
    else:
        raise AssertionError("a class that the model has not must be refused")
    print(f"tritonclient {protocol}: the explanation differs by {error:.1e} of the largest part")


main()
