"""``python -m hipvit.ray embed photos/ -o embeddings/ --model dir`` runs on the cluster that this machine is part of."""

from __future__ import annotations

import argparse
import sys
import time

import hipvit
from hipvit.ray.blocks import Block
from hipvit.ray.run import process


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hipvit.ray", description=__doc__)
    parser.add_argument("task", choices=("embed", "classify"))
    parser.add_argument("images", help="a folder of images, which every machine has")
    parser.add_argument("-o", "--output", required=True, help="the folder for the Parquet files, which every machine shares")
    parser.add_argument("-m", "--model", help="a model directory or a name on the hub; by default the embedded model")
    parser.add_argument("--workers", type=int, help="processes, by default as many as the cluster has GPUs or cores for; 0: this one")
    parser.add_argument("--cpus-per-worker", type=float, default=1)
    parser.add_argument("--gpus-per-worker", type=float, default=0)
    parser.add_argument("--block-size", type=int, default=256, help="images in a Parquet file")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--top", type=int, default=5, help="classes of each image")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--address", help="of the cluster; by default the one that this machine is part of, or a local one")
    arguments = parser.parse_args()

    start, seen = time.monotonic(), [0, 0, 0]

    def progress(block: Block) -> None:
        seen[0] += 1
        seen[1] += block.images
        seen[2] += block.failed
        rate = seen[1] / (time.monotonic() - start)
        print(f"\r{seen[0]} blocks, {seen[1]} images, {seen[2]} failed, {rate:.0f} images/s", end="", file=sys.stderr)

    if arguments.address:
        import ray

        ray.init(address=arguments.address, log_to_driver=False)
    try:
        process(
            arguments.images,
            arguments.output,
            task=arguments.task,
            model=arguments.model,
            workers=arguments.workers,
            cpus_per_worker=arguments.cpus_per_worker,
            gpus_per_worker=arguments.gpus_per_worker,
            block_size=arguments.block_size,
            top=arguments.top,
            batch=arguments.batch,
            dtype=arguments.dtype,
            progress=progress,
        )
    except hipvit.Error as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"\n{arguments.output}: complete", file=sys.stderr)
    return 1 if seen[2] else 0


if __name__ == "__main__":
    sys.exit(main())
