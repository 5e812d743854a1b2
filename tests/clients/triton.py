"""tritonclient against `hipvit serve`: health, metadata, configuration, statistics, repository, errors, and every golden model bit for
bit, one image at a time, in a batch, and asynchronously. Usage: triton.py http|grpc ADDRESS EXPECTED"""

import queue
import sys
from pathlib import Path

import numpy as np
import tritonclient.utils as utils
from expected import check_top, outputs_of, read, same_bits

protocol, address, folder = sys.argv[1:]
if protocol == "http":
    import tritonclient.http as triton
else:
    import tritonclient.grpc as triton


def field(answer, name):
    """Of JSON or of a message."""
    return answer[name] if isinstance(answer, dict) else getattr(answer, name)


def images(paths):
    tensor = triton.InferInput("image", [len(paths)], "BYTES")
    tensor.set_data_from_numpy(np.array([Path(path).read_bytes() for path in paths], dtype=np.object_))
    return [tensor]


def fails(call, *parts):
    try:
        call()
    except utils.InferenceServerException as error:
        for part in parts:
            assert part in str(error), f"{part!r} is not in {error}"
        return
    raise SystemExit(f"no error with {parts}")


def main():
    client = triton.InferenceServerClient(address)
    assert client.is_server_live() and client.is_server_ready()
    server = client.get_server_metadata()
    assert field(server, "name") == "hipvit" and "binary_tensor_data" in list(field(server, "extensions"))
    results = read(folder)
    index = client.get_model_repository_index()
    index = index if isinstance(index, list) else list(index.models)
    ready = {field(model, "name") for model in index if field(model, "state") == "READY"}
    assert ready >= set(results), ready
    compared = 0
    for model, by_image in results.items():
        assert client.is_model_ready(model) and client.is_model_ready(model, "1")
        metadata = client.get_model_metadata(model)
        declared = {field(output, "name"): list(map(int, field(output, "shape"))) for output in field(metadata, "outputs")}
        paths = list(by_image)
        names = outputs_of(by_image[paths[0]])
        for name in names:
            assert declared[name] == [-1, by_image[paths[0]][name].size], (model, declared)
        configuration(client, model, declared)
        before = statistics(client, model)
        # One by one, with all outputs by default.
        for path in paths:
            answer = client.infer(model, images([path]), request_id="17")
            assert field(answer.get_response(), "id") == "17"
            for name in names:
                same_bits(answer.as_numpy(name)[0], by_image[path][name], f"{model}, {path}, {name}")
                compared += 1
        # In one batch, binary and, over HTTP, as JSON.
        for binary in (True, False) if protocol == "http" else (True,):
            options = {"binary_data": binary} if protocol == "http" else {}
            wanted = [triton.InferRequestedOutput(name, **options) for name in names]
            answer = client.infer(model, images(paths), outputs=wanted)
            for name in names:
                together = np.stack([by_image[path][name] for path in paths])
                same_bits(answer.as_numpy(name), together, f"{model}, batch, {name}")
        if "logits" in names:
            wanted = [triton.InferRequestedOutput("top"), triton.InferRequestedOutput("logits", class_count=1)]
            answer = client.infer(model, images(paths), outputs=wanted)
            for row, path in enumerate(paths):
                best = by_image[path]["top"][0]
                check_top(answer.as_numpy("top")[row][0].decode(), best, f"{model}, {path}")
                logit, index = answer.as_numpy("logits")[row][0].decode().split(":")[:2]
                assert np.float32(logit) == by_image[path]["logits"][best["index"]] and int(index) == best["index"]

        after = statistics(client, model)
        count = lambda part: int(field(field(after[0], part), "count")) - int(field(field(before[0], part), "count"))
        assert count("success") > len(paths) and count("fail") == 0, (model, after)
        assert count("queue") == count("compute_input") == count("compute_infer") == count("compute_output") == count("success")
        assert int(field(field(after[0], "compute_infer"), "ns")) > int(field(field(before[0], "compute_infer"), "ns"))
        assert after[1] - before[1] >= 2 * len(paths) and after[2] > before[2], (model, after)

    model, by_image = next(iter(results.items()))
    path = next(iter(by_image))
    asynchronous(client, model, path, by_image[path])
    fails(lambda: client.infer("no_such_model", images([path])), "no_such_model")
    wrong = triton.InferInput("picture", [1], "BYTES")
    wrong.set_data_from_numpy(np.array([b"x"], dtype=np.object_))
    fails(lambda: client.infer(model, [wrong]), "input `picture`")
    broken = triton.InferInput("image", [1], "BYTES")
    broken.set_data_from_numpy(np.array([b"not an image"], dtype=np.object_))
    fails(lambda: client.infer(model, [broken]), "input `image`, image 0", "not a PNG")
    fails(lambda: client.infer(model, images([path]), timeout=1), "deadline")
    fails(lambda: client.get_model_metadata(model, "99"), "no version `99`")
    print(f"tritonclient {protocol}: {len(results)} models, {compared} outputs bit for bit")


def configuration(client, model, declared):
    """The model's configuration has its outputs, without the batch dimension."""
    config = client.get_model_config(model)
    config = config if isinstance(config, dict) else config.config
    assert field(config, "name") == model and field(config, "max_batch_size") == 4
    outputs = {field(output, "name"): list(map(int, field(output, "dims"))) for output in field(config, "output")}
    assert outputs == {name: shape[1:] for name, shape in declared.items()}, (model, outputs)


def statistics(client, model):
    """The durations of requests, the number of images, and that of batches, which the statistics of batches add up to."""
    answer = client.get_inference_statistics(model)
    (stats,) = field(answer, "model_stats")
    batches = field(stats, "batch_stats")
    executions = sum(int(field(field(batch, "compute_infer"), "count")) for batch in batches)
    images = sum(int(field(batch, "batch_size")) * int(field(field(batch, "compute_infer"), "count")) for batch in batches)
    assert (images, executions) == (int(field(stats, "inference_count")), int(field(stats, "execution_count"))), (model, stats)
    return field(stats, "inference_stats"), images, executions


def asynchronous(client, model, path, wanted):
    """Many requests in flight, and a stream over gRPC."""
    name = outputs_of(wanted)[0]
    if protocol == "http":
        pooled = triton.InferenceServerClient(address, concurrency=4)
        pending = [pooled.async_infer(model, images([path])) for _ in range(32)]
        for answer in pending:
            same_bits(answer.get_result().as_numpy(name)[0], wanted[name], f"{model}, asynchronous")
        pooled.close()
        return
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for request in range(16):
        client.async_stream_infer(model, images([path]), request_id=str(request))
    for request in range(16):
        answer, error = answers.get()
        assert error is None and answer.get_response().id == str(request), error
        same_bits(answer.as_numpy(name)[0], wanted[name], f"{model}, stream")
    client.stop_stream()


main()
