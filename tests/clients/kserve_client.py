"""KServe's client against `hipvit serve`, over REST and gRPC: health, and every golden model bit for bit.
Usage: kserve_client.py ADDRESS EXPECTED"""

import asyncio
import base64
import sys
from pathlib import Path

import numpy as np
from expected import outputs_of, read, same_bits
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig

address, folder = sys.argv[1:]


def request(model, path, binary):
    file = Path(path).read_bytes()
    if binary:
        tensor = InferInput("image", [1], "BYTES")
        tensor.set_data_from_numpy(np.array([file], dtype=np.object_), binary_data=True)
    else:
        tensor = InferInput("image", [1], "BYTES", data=[base64.b64encode(file).decode()])
    return InferRequest(model_name=model, infer_inputs=[tensor])


async def main():
    results = read(folder)
    url = f"http://{address}"
    compared = 0
    rest = InferenceRESTClient(RESTConfig(protocol="v2", retries=0))
    grpc = InferenceGRPCClient(address, retries=0)
    assert await rest.is_server_live(url) and await rest.is_server_ready(url)
    assert await grpc.is_server_live() and await grpc.is_server_ready()
    for model, by_image in results.items():
        assert await rest.is_model_ready(url, model) and await grpc.is_model_ready(model)
        for path, wanted in by_image.items():
            answers = {
                "JSON": await rest.infer(url, request(model, path, False), model),
                "binary": await rest.infer(url, request(model, path, True), model),
                "gRPC": await grpc.infer(request(model, path, True)),
            }
            for how, answer in answers.items():
                outputs = {output.name: output for output in answer.outputs}
                for name in outputs_of(wanted):
                    got = np.asarray(outputs[name].as_numpy(), np.float32)[0]
                    same_bits(got, wanted[name], f"{model}, {path}, {name}, {how}")
                    compared += 1
    await rest.close()
    await grpc.close()
    print(f"kserve: {len(results)} models, {compared} outputs bit for bit over JSON, binary and gRPC")


asyncio.run(main())
