"""A job on the workers of a Ray cluster, or in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Optional, Union

import hipvit
from hipvit.ray.blocks import Block, Job, list_images, write
from hipvit.ray.predictor import Task

# Beside one that runs, a worker has this many waiting, so that it need not wait for the scheduler.
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

    ``images``, ``output`` and ``model`` are paths that every machine of the cluster has, on a file system that they share. A run
    that was interrupted goes on where it stopped when it is started again: blocks of ``block_size`` images whose file is there
    are not done again. Ray starts workers that died again, and has their blocks done again. An image that fails is a row with
    its ``error``.

    ``workers`` actors run, by default as many as the cluster has GPUs for (with ``gpus_per_worker``) or cores; 0 is this process,
    without Ray. ``progress`` is called with each block that is done. ``options`` are those of ``hipvit.load``. Returns the blocks
    that this run did.
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


def _here(job: Job, blocks: list[int]) -> Iterator[Block]:
    if blocks:
        with hipvit.load(job.model, **job.options) as model:
            for block in blocks:
                yield write(job, model, block)


class _Worker:
    """The actor: one model, block after block."""

    def __init__(self, job: Any) -> None:
        import ray

        self.job: Job = ray.get(job[0])
        self.model = hipvit.load(self.job.model, **self.job.options)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return asdict(write(self.job, self.model, int(row["block"])))


def _on_cluster(
    job: Job, blocks: list[int], workers: Optional[int], cpus: float, gpus: float
) -> Iterator[Block]:
    if not blocks:
        return
    import ray

    if not ray.is_initialized():
        # The machine's cluster if there is one, else one of this machine alone.
        ray.init(log_to_driver=False)
    if workers is None:
        resource, each = ("GPU", gpus) if gpus else ("CPU", cpus)
        workers = max(1, int(ray.cluster_resources().get(resource, 0) // each))
    workers = min(workers, len(blocks))
    # A GPU's worker sees only its own GPU; a CPU's worker computes on its cores.
    options = {"device": "hip"} if gpus else {"device": "cpu", "threads": max(1, int(cpus))}
    job = Job(**{**vars(job), "options": {**options, **job.options}})
    shared = ray.put(job)
    # One block per task, so that no more is lost with a worker.
    dataset = ray.data.from_items([{"block": block} for block in blocks], override_num_blocks=len(blocks))
    results = dataset.map(
        _Worker,
        fn_constructor_args=([shared],),
        compute=ray.data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=_IN_FLIGHT),
        num_cpus=cpus,
        num_gpus=gpus,
    )
    for row in results.iter_rows():
        yield Block(**row)
