"""A local Ray cluster of several processes does 2,000 images: one worker is killed, a run is interrupted, and the output is compared with
that of this process, byte by byte. Also Ray Data on its own, Ray Serve, Ray Train, and two workers on an emulated GPU each. Started by ci/ray."""

from __future__ import annotations

import ctypes
import io
import json
import os
import signal
import socket
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import ray
from PIL import Image
from ray import serve
from ray.cluster_utils import Cluster

import hipvit
from hipvit.ray import Block, Predictor, process, train
from hipvit.ray.serve import app

IMAGES = 2000
BLOCK = 40
BLOCKS = IMAGES // BLOCK
WORKERS = 3
DAMAGED = 1234
# Emulated GPUs are slow.
GPU_IMAGES = 48
GPU_BLOCK = 6


def make_images(folder: Path) -> None:
    """Digits with noise, always the same, one of them damaged."""
    random = np.random.default_rng(0)
    samples = folder.parent / "samples"
    samples.mkdir()
    digits = []
    for name, encoded in hipvit.samples():
        (samples / name).write_bytes(encoded)
        digits.append(np.array(Image.open(samples / name).convert("RGB"), dtype=np.int16))
    for index in range(IMAGES):
        pixels = digits[index % 10] + random.integers(-20, 21, digits[0].shape)
        path = folder / f"{index % 7}" / f"{index:05}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
        if index == DAMAGED:
            path.write_bytes(path.read_bytes()[:-100])


@contextmanager
def cluster() -> Iterator[None]:
    """Three nodes: a head without cores, and two that work."""
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(2):
            nodes.add_node(num_cpus=2)
        ray.init(address=nodes.address, log_to_driver=False, configure_logging=False)
        yield
    finally:
        ray.shutdown()
        nodes.shutdown()


def files(folder: Path) -> dict[str, bytes]:
    """What a job wrote. Left-overs of killed workers would be among them."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != "_job.json"}


def check_equal(got: Path, expected: Path, images: int = IMAGES, blocks: int = BLOCKS) -> None:
    ours, theirs = files(got), files(expected)
    assert list(ours) == list(theirs) == [f"part-{block:06}.parquet" for block in range(blocks)], list(ours)
    differ = [name for name in ours if ours[name] != theirs[name]]
    assert not differ, f"{differ} differ"
    paths = pq.read_table(got, columns=["path"])["path"].to_pylist()
    assert len(paths) == len(set(paths)) == images


def killed_worker(images: Path, output: Path, expected: Path, options: dict[str, Any]) -> None:
    """A worker gets SIGKILL while it has blocks to do."""
    pids: list[int] = []
    killed: list[int] = []

    def progress(block: Block) -> None:
        pids.append(block.pid)
        if len(pids) == 5:
            killed.append(block.pid)
            os.kill(block.pid, signal.SIGKILL)

    done = process(images, output, workers=WORKERS, block_size=BLOCK, progress=progress, **options)
    assert len(killed) == 1 and len(done) >= BLOCKS
    assert {block.index for block in done} == set(range(BLOCKS))
    # The other workers continued, or a new worker replaced it.
    assert set(pids[-5:]) - set(killed), "no other worker did a block"
    check_equal(output, expected)
    workers = sorted({block.pid for block in done})
    print(f"worker {killed[0]} killed after 5 of {BLOCKS} blocks; done by {len(workers)} processes; output equal")


def interrupted_run(images: Path, output: Path, expected: Path, options: dict[str, Any]) -> None:
    """The driver ends after some blocks, and is started again."""

    class Interrupted(Exception):
        pass

    def progress(block: Block) -> None:
        if len(list(output.glob("part-*.parquet"))) >= 10:
            raise Interrupted

    try:
        process(images, output, workers=WORKERS, block_size=BLOCK, progress=progress, **options)
    except Interrupted:
        pass
    else:
        raise AssertionError("the run was not interrupted")
    # Finished blocks stay unchanged and are not repeated. Blocks in flight may still end.
    before = {path.name: path.stat().st_ino for path in output.glob("part-*.parquet")}
    done = process(images, output, workers=WORKERS, block_size=BLOCK, **options)
    check_equal(output, expected)
    assert len(done) < BLOCKS, len(done)
    assert not {f"part-{block.index:06}.parquet" for block in done} & {
        name for name, inode in before.items() if (output / name).stat().st_ino == inode
    }
    assert process(images, output, workers=WORKERS, block_size=BLOCK, **options) == []
    try:
        process(images, output, workers=WORKERS, block_size=BLOCK + 1, **options)
    except hipvit.ArgumentError as error:
        assert "block_size" in str(error)
    else:
        raise AssertionError("another job's folder was accepted")
    print(f"interrupted after {len(before)} blocks; the second run did {len(done)}, the third none; output equal")


def dataset(images: Path) -> None:
    """Ray Data with a dataset of its user's own."""
    rows = ray.data.read_binary_files(str(images), include_paths=True).map_batches(
        Predictor,
        fn_constructor_kwargs={"task": "classify", "device": "cpu", "threads": 1},
        batch_size=64,
        compute=ray.data.ActorPoolStrategy(size=2),
    )
    results = rows.take_all()
    assert len(results) == IMAGES
    model = hipvit.load(device="cpu")
    failed = 0
    correct = 0
    for row in results:
        index = int(Path(row["path"]).stem)
        if row["error"]:
            failed += 1
            assert index == DAMAGED and row["index"] == -1
        else:
            correct += row["label"] == model.labels[index % 10]
    assert failed == 1 and correct > 0.98 * IMAGES, (failed, correct)
    print(f"map_batches: {correct} of {IMAGES - 1} digits classified correctly, 1 damaged")


def serving(image: bytes) -> None:
    """Ray Serve, by its handle and over HTTP."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # The nodes share one machine, so a second proxy would find the port taken. On a busy machine one starts after Ray
    # has stopped waiting.
    with suppress(TimeoutError):
        serve.start(proxy_location="HeadOnly", http_options={"port": port, "host": "127.0.0.1"})
    serve.run(app({"replicas": "2", "batch": "4"}), name="digits", route_prefix="/")
    handle: Any = serve.get_app_handle("digits")
    answers = [handle.classify.remote(image, 1) for _ in range(32)]
    assert {answer.result()[0].label for answer in answers} == {"seven"}
    try:
        handle.classify.remote(b"no image").result()
    except hipvit.ImageError as error:
        assert "not a PNG" in str(error)
    else:
        raise AssertionError("bytes that are no image were accepted")

    def post(query: str, data: bytes) -> Any:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/{query}", data=data)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    for _ in range(300):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/-/healthz").close()
            break
        except OSError:
            time.sleep(1)
    classes = post("?top=2", image)["classes"]
    assert len(classes) == 2 and classes[0]["label"] == "seven"
    embedding = np.array(post("?task=embed", image)["embedding"], dtype=np.float32)
    # Batches of other sizes sum in a different order.
    expected = hipvit.load(device="cpu", threads=1).embed(image)[0]
    np.testing.assert_allclose(embedding, expected, rtol=0, atol=2e-5 * float(np.abs(expected).max()))
    for query, data in (("", b"no image"), ("?top=many", image)):
        try:
            post(query, data)
        except urllib.error.HTTPError as error:
            assert error.code == 400 and "error" in json.load(error)
        else:
            raise AssertionError(f"{query or 'bytes that are no image'}: accepted")
    serve.shutdown()
    print("Ray Serve: 32 requests to two replicas; over HTTP classes, an embedding and two errors")


def make_dataset(folder: Path) -> None:
    """Digits with noise, a directory per class, and a small model."""
    random = np.random.default_rng(1)
    for index, (_, encoded) in enumerate(hipvit.samples()):
        digit = np.array(Image.open(io.BytesIO(encoded)).convert("RGB"), dtype=np.int16)
        for name, count in (("train", 8), ("val", 2)):
            directory = folder / "data" / name / str(index)
            directory.mkdir(parents=True)
            for number in range(count):
                pixels = digit + random.integers(-20, 21, digit.shape)
                Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(directory / f"{number}.png")
    small = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 1, "num_heads": 2, "mlp_ratio": 2}
    config = {
        "architecture": "vit_tiny_patch16_224",
        "model_args": {**small, "class_token": False, "global_pool": "avg"},
        "pretrained_cfg": {"input_size": [3, 32, 32], "interpolation": "bicubic", "crop_pct": 1.0, "mean": [0.5] * 3, "std": [0.5] * 3},
    }
    (folder / "config.json").write_text(json.dumps(config))


def training(folder: Path) -> None:
    """Ray Train drives two workers. One gets SIGKILL after a checkpoint, and the run goes on."""
    make_dataset(folder)
    killed = folder / "killed"

    def kill(event: dict[str, Any]) -> None:
        # In the second epoch of the first attempt, between two checkpoints.
        if event["event"] == "step" and event["step"] == 8 and not killed.exists():
            killed.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)

    options: dict[str, Any] = {"epochs": 4, "batch": 16, "lr": 1e-2, "log_every": 1, "storage": folder / "ray"}
    whole, parts = folder / "whole", folder / "parts"
    expected = train(folder / "data", folder / "config.json", output=whole, workers=2, **options)
    result = train(folder / "data", folder / "config.json", output=parts, workers=2, callback=kill, **options)
    assert killed.exists()
    assert (result.steps, result.epochs, result.loss) == (expected.steps, expected.epochs, expected.loss) == (20, 4, expected.loss)
    weights = [run / "model" / "model.safetensors" for run in (whole, parts)]
    assert weights[0].read_bytes() == weights[1].read_bytes(), "the weights differ"
    assert not list(folder.glob(".*.started"))
    print(f"Ray Train: worker {killed.read_text()} killed in step 8 of {result.steps}; the weights are those of a run without failures")


def visible_gpus() -> tuple[str, int]:
    """What a worker is told of its GPU, and how many GPUs its HIP runtime has."""
    count = ctypes.c_int()
    assert ctypes.CDLL(os.environ["HIPVIT_PROVIDER"]).hipGetDeviceCount(ctypes.byref(count)) == 0
    told = os.environ.get("HIP_VISIBLE_DEVICES") or os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return told, count.value


def two_gpus(images: Path, work: Path) -> None:
    """A worker on each of two GPUs; one gets SIGKILL."""
    some = sorted(images.rglob("*.png"))[:GPU_IMAGES]
    blocks = GPU_IMAGES // GPU_BLOCK
    options: dict[str, Any] = {"task": "classify", "top": 3, "block_size": GPU_BLOCK, "threads": 1}
    process(some, work / "expected-gpu", workers=0, device="hip", **options)
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "num_gpus": 2, "include_dashboard": False})
    try:
        ray.init(address=nodes.address, log_to_driver=False, configure_logging=False)
        Seen: Any = ray.remote(num_gpus=1, num_cpus=1)(type("Seen", (), {"gpus": lambda _: visible_gpus()}))
        actors = [Seen.remote() for _ in range(2)]
        seen = ray.get([actor.gpus.remote() for actor in actors])
        assert sorted(seen) == [("0", 1), ("1", 1)], seen
        for actor in actors:
            ray.kill(actor)
        pids: list[int] = []

        def progress(block: Block) -> None:
            pids.append(block.pid)
            if len(pids) == 2:
                os.kill(block.pid, signal.SIGKILL)

        done = process(some, work / "gpu", gpus_per_worker=1, progress=progress, **options)
        assert {block.index for block in done} == set(range(blocks))
        assert len(set(pids)) >= 2, pids
        check_equal(work / "gpu", work / "expected-gpu", GPU_IMAGES, blocks)
    finally:
        ray.shutdown()
        nodes.shutdown()
    print(f"two GPUs: a worker on each, one killed; {GPU_IMAGES} images, output equal")


def main() -> int:
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        images = work / "images"
        make_images(images)
        tasks: list[dict[str, Any]] = [{"task": "embed"}, {"task": "classify", "top": 3}]
        # Use one core, as each worker does, so that sums have the same order.
        here: dict[str, Any] = {"device": "cpu", "threads": 1}
        for options in tasks:
            done = process(images, work / f"expected-{options['task']}", workers=0, block_size=BLOCK, **{**here, **options})
            assert [block.index for block in done] == list(range(BLOCKS))
            assert sum(block.failed for block in done) == 1
        with cluster():
            embed, classify = tasks
            killed_worker(images, work / "killed", work / "expected-embed", {**here, **embed})
            interrupted_run(images, work / "resumed", work / "expected-classify", {**here, **classify})
            dataset(images)
            (seven,) = [encoded for name, encoded in hipvit.samples() if name == "7.png"]
            serving(seven)
            training(work / "training")
        if provider := os.environ.get("HIPVIT_RAY_PROVIDER"):
            # Start here: a model of the earlier workers could have taken a GPU.
            os.environ["HIPVIT_PROVIDER"] = provider
            two_gpus(images, work)
    print("killed worker, interrupted run, map_batches, Ray Serve, Ray Train: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
