"""`hipvit serve` and MLServer, one after the other, with the same ViT, the same client and the same requests:

    python3 benches/serve_peer.py models/vit_base_patch16_224 --image photo.jpg

MLServer runs the model by OpenVINO, with its adaptive batching (benches/mlserver), in a virtual environment of its own,
target/clients/mlserver. Needs torch and onnx, of scripts/requirements.txt, to export the model. Requests are JSON with images in
base64, since MLServer has no binary tensors. The logits of both are compared before anything is timed.
"""

import argparse
import base64
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The last uvloop that works with this MLServer.
PACKAGES = ["mlserver==1.7.1", "uvloop==0.21.0", "openvino==2026.4.1", "pillow==13.0.0", "numpy==2.4.6"]


def export(model: Path, folder: Path, threads: int, port: int) -> None:
    import torch

    sys.path.insert(0, str(ROOT / "benches"))
    from peers.vit import load

    loaded = load(model)
    config = json.loads((model / "config.json").read_text())["pretrained_cfg"]
    values = torch.zeros(2, 3, *loaded.size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            loaded.module, (values,), str(folder / "model.onnx"), input_names=["pixels"], output_names=["logits"],
            dynamic_axes={"pixels": {0: "batch"}, "logits": {0: "batch"}}, dynamo=False, opset_version=17,
        )
    extra = {
        "size": loaded.size[0],
        "resized": int(loaded.size[0] / config["crop_pct"]),
        "mean": loaded.mean,
        "std": loaded.std,
        "interpolation": config["interpolation"],
        "threads": threads,
    }
    (folder / "model-settings.json").write_text(json.dumps({
        "name": "m",
        "implementation": "vit_runtime.Vit",
        "max_batch_size": 8,
        "max_batch_time": 0.002,
        "parameters": {"uri": str(folder / "model.onnx"), "extra": extra},
    }))
    (folder / "settings.json").write_text(json.dumps({
        "host": "127.0.0.1", "http_port": port, "grpc_port": free(), "metrics_port": free(), "parallel_workers": 1, "debug": False,
    }))


def free() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def logits(port: int, image: Path) -> list[float]:
    data = [base64.b64encode(image.read_bytes()).decode()]
    body = {"inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": data}], "outputs": [{"name": "logits"}]}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v2/models/m/infer", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    return json.loads(urllib.request.urlopen(request).read())["outputs"][0]["data"]


def start(command: list[str], port: int, **options) -> subprocess.Popen:
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    for _ in range(1200):
        if server.poll() is not None:
            break
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/m/ready")
            return server
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    server.kill()
    raise SystemExit(f"{command[0]} did not start; run it by hand: {' '.join(command)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("model", type=Path, help="a model directory as timm writes it")
    parser.add_argument("--image", type=Path, default=ROOT / "tests/golden/images/photo.jpg")
    parser.add_argument("--images", default="4", help="maximum number of images in a request")
    parser.add_argument("--seconds", default="10", help="of each load")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--hipvit", type=Path, help="the program, with the feature serve (default: built)")
    parser.add_argument("--client", type=Path, help="the benchmark serve (default: built and run by Cargo)")
    arguments = parser.parse_args()
    model, image = arguments.model.resolve(), arguments.image.resolve()

    environment = ROOT / "target/clients/mlserver"
    if not (environment / "bin/python").exists():
        subprocess.check_call([sys.executable, "-m", "venv", str(environment)])
    subprocess.check_call([str(environment / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", *PACKAGES])
    if not arguments.hipvit:
        subprocess.check_call(["cargo", "build", "--release", "--locked", "--quiet", "--features", "serve"], cwd=ROOT)
        arguments.hipvit = ROOT / "target/release/hipvit"
    client = ["cargo", "bench", "--quiet", "--locked", "--bench", "serve", "--features", "serve", "--"]
    if arguments.client:
        client = [str(arguments.client.resolve())]
    folder = ROOT / "target/clients/mlserver-model"
    folder.mkdir(exist_ok=True)

    def bench(name: str, port: int) -> list[float]:
        values = logits(port, image)
        print(f"\n# {name}", flush=True)
        subprocess.check_call([
            *client, "--url", f"127.0.0.1:{port}",
            "--image", str(image), "--images", arguments.images, "--seconds", arguments.seconds, "--json",
        ], cwd=ROOT)
        return values

    port = free()
    hipvit = start(
        [str(arguments.hipvit.resolve()), "serve", "--listen", f"127.0.0.1:{port}", "--device", "cpu", "--model", f"m={model}",
         "--threads", str(arguments.threads)],
        port,
    )
    try:
        ours = bench("hipvit serve", port)
    finally:
        hipvit.terminate()
        hipvit.wait()
    port = free()
    export(model, folder, arguments.threads, port)
    mlserver = start(
        [str(environment / "bin/mlserver"), "start", str(folder)], port,
        env={**os.environ, "PYTHONPATH": str(ROOT / "benches/mlserver")}, start_new_session=True,
    )
    try:
        theirs = logits(port, image)
        scale = max(map(abs, ours))
        error = max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / scale
        if error > 1e-3:
            raise SystemExit(f"MLServer computes something else: its logits differ by {error:.1e} of the largest")
        bench("MLServer 1.7.1 with OpenVINO 2026.4.1", port)
        print(f"\nThe logits of both agree within {error:.1e} of the largest.")
    finally:
        # With its workers.
        os.killpg(mlserver.pid, 15)
        mlserver.wait()


if __name__ == "__main__":
    main()
