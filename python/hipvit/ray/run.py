"""A job on the workers of a Ray cluster, or in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Optional, Union

import hipvit
from hipvit.ray.blocks import Block, Job, list_images, write
from hipvit.ray.predictor import Task

# Number of blocks that wait in a worker in addition to the running one, so that it need not wait for the scheduler.
_IN_FLIGHT = 2


def process(
    images: Union[str, os.PathLike[str], Iterable[Union[str, os.PathLike[str]]]],
    output: Union[str, os.PathLike[str]],
    *,
    task: Task = "embed",
    model: Optional[str] = None,
    workers: Optional[int] = None,
    cpus_per_worker: float = 1,
    gpus_per_worker: float = 0,
    block_size: int = 256,
    top: int = 5,
    progress: Optional[Callable[[Block], None]] = None,
    **options: Any,
) -> list[Block]:
    """Embeds or classifies ``images``, a folder or a list of files, into Parquet files in ``output``.

    ``images``, ``output`` and ``model`` are paths on a file system that all machines of the cluster share. An interrupted run
    continues when it is started again: blocks of ``block_size`` images with a file are not repeated. Ray restarts workers that
    died, and repeats their blocks. An image that fails is a row with its ``error``.

    ``workers`` is the number of actors. By default it is limited by the cluster's GPUs (with ``gpus_per_worker``) or cores. 0 uses
    this process, without Ray. ``progress`` is called with each finished block. ``options`` are those of ``hipvit.load``. Returns
    the blocks that this run processed.
    """
    job = Job(
        output=Path(output).absolute(),
        images=list_images(images),
        task=task,
        model=model,
        block_size=block_size,
        top=top,
        options=options,
    )
    job.open()
    missing = job.missing()
    done = []
    blocks = _here(job, missing) if workers == 0 else _on_cluster(job, missing, workers, cpus_per_worker, gpus_per_worker)
    # Close it also if `progress` raises.
    with closing(blocks):
        for block in blocks:
            done.append(block)
            if progress:
                progress(block)
    left = job.missing()
    if left:
        raise hipvit.InputOutputError(
            f"{job.output}: {len(left)} of {len(job)} blocks have no file, the first is {job.path(left[0]).name}; is the folder on a "
            "file system that all machines share? Start again to do them"
        )
    job.close()
    return done


def _here(job: Job, blocks: list[int]) -> Generator[Block, None, None]:
    if blocks:
        with hipvit.load(job.model, **job.options) as model:
            for block in blocks:
                yield write(job, model, block)


class _Worker:
    """The actor: runs one model on one block after the other."""

    def __init__(self, job: Any) -> None:
        import ray

        self.job: Job = ray.get(job[0])
        self.model = hipvit.load(self.job.model, **self.job.options)

    def do(self, block: int) -> Block:
        return write(self.job, self.model, block)


def _on_cluster(
    job: Job, blocks: list[int], workers: Optional[int], cpus: float, gpus: float
) -> Generator[Block, None, None]:
    if not blocks:
        return
    import ray

    if not ray.is_initialized():
        # Use the machine's cluster if there is one, otherwise start a local one.
        ray.init(log_to_driver=False)
    if workers is None:
        resource, each = ("GPU", gpus) if gpus else ("CPU", cpus)
        workers = max(1, int(ray.cluster_resources().get(resource, 0) // each))
    workers = min(workers, len(blocks))
    # A GPU worker sees only its own GPU; a CPU worker computes on its cores.
    options = {"device": "hip"} if gpus else {"device": "cpu", "threads": max(1, int(cpus))}
    job = Job(**{**vars(job), "options": {**options, **job.options}})
    shared = ray.put(job)
    # A worker that dies is restarted, and only its blocks in flight are repeated.
    actor_class: Any = ray.remote(num_cpus=cpus, num_gpus=gpus, max_restarts=-1, max_task_retries=-1)(_Worker)
    actors = [actor_class.remote([shared]) for _ in range(workers)]
    left = iter(blocks)
    in_flight: dict[Any, Any] = {}

    def submit(actor: Any) -> None:
        block = next(left, None)
        if block is not None:
            in_flight[actor.do.remote(block)] = actor

    try:
        for actor in actors * _IN_FLIGHT:
            submit(actor)
        while in_flight:
            (ready,), _ = ray.wait(list(in_flight), num_returns=1)
            submit(in_flight.pop(ready))
            yield ray.get(ready)
    finally:
        # Also if the caller gives up, because the workers occupy the cluster's cores.
        for actor in actors:
            ray.kill(actor)
