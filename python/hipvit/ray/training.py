"""Training on the workers of a Ray cluster, which Ray Train starts and starts again."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional, Union

import hipvit

# Options of a process. All others are of the run, which keeps them.
_OF_PROCESS = ("device", "dtype", "threads", "holdout", "skip_broken", "log_every")


def train(
    data: Union[str, os.PathLike[str]],
    model: Union[str, os.PathLike[str], None] = None,
    *,
    output: Union[str, os.PathLike[str]],
    workers: int,
    cpus_per_worker: float = 1,
    gpus_per_worker: float = 0,
    max_failures: int = 3,
    storage: Union[str, os.PathLike[str], None] = None,
    resume: bool = False,
    callback: Optional[Callable[[dict[str, Any]], object]] = None,
    **options: Any,
) -> hipvit.TrainingResult:
    """Trains a model on ``workers`` processes of a Ray cluster, each of which is a rank of ``hipvit.train``.

    ``data``, ``model`` and ``output`` are paths on a file system that all machines of the cluster share. ``options`` are those of
    ``hipvit.train``. ``callback`` is pickled, and called in the process of rank 0.

    If a worker dies, Ray Train starts all of them again, at most ``max_failures`` times, and the run continues after its newest
    checkpoint. The result has the bits of a run without failures. If Ray itself is interrupted, ``resume=True`` continues the run.
    ``storage`` is Ray Train's own folder, which has no checkpoints: by default ``~/ray_results``.
    """
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    from hipvit.ray._backend import RendezvousConfig

    defaults: dict[str, Any] = {"device": "hip"} if gpus_per_worker else {"device": "cpu", "threads": max(1, int(cpus_per_worker))}
    arguments = {
        "data": str(Path(data).absolute()),
        "model": None if model is None else _path(model),
        "output": str(Path(output).absolute()),
        "resume": resume,
        "callback": callback,
        "options": {**defaults, **options},
        "started": _started(output),
    }
    resources = {"CPU": cpus_per_worker, **({"GPU": gpus_per_worker} if gpus_per_worker else {})}
    if not ray.is_initialized():
        # Use the machine's cluster if there is one, otherwise start a local one.
        ray.init(log_to_driver=False)
    trainer: Any = DataParallelTrainer(
        _rank,
        # In the object store: Ray Train writes configurations as JSON.
        train_loop_config={"arguments": [ray.put(arguments)]},
        backend_config=RendezvousConfig(),
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpus_per_worker > 0, resources_per_worker=resources),
        run_config=RunConfig(
            storage_path=None if storage is None else str(Path(storage).absolute()),
            failure_config=FailureConfig(max_failures=max_failures),
        ),
    )
    result: hipvit.TrainingResult = trainer.fit().return_value
    return result


def _path(model: Union[str, os.PathLike[str]]) -> str:
    """A file or a directory by its whole path; other names as they are."""
    path = Path(model)
    return str(path.absolute()) if path.exists() else os.fspath(model)


def _started(output: Union[str, os.PathLike[str]]) -> str:
    """A file beside the output, by which an attempt knows that the output is of an earlier attempt."""
    path = Path(output).absolute()
    return str(path.with_name(f".{path.name}.{secrets.token_hex(4)}.started"))


def _rank(config: dict[str, Any]) -> Optional[hipvit.TrainingResult]:
    """The function of a worker."""
    import ray
    from ray.train import get_context

    context: Any = get_context()
    os.environ.update(
        RANK=str(context.get_world_rank()),
        WORLD_SIZE=str(context.get_world_size()),
        LOCAL_RANK=str(context.get_local_rank()),
        LOCAL_WORLD_SIZE=str(context.get_local_world_size()),
    )
    arguments: dict[str, Any] = ray.get(config["arguments"][0])
    leads = context.get_world_rank() == 0
    started = Path(arguments["started"])
    options: dict[str, Any] = arguments["options"]
    # The other ranks get the run from rank 0.
    if arguments["resume"] or (leads and _continues(Path(arguments["output"]), started)):
        of_run: dict[str, Any] = {"resume": True}
    else:
        of_run = {"model": arguments["model"], **{name: options[name] for name in options if name not in _OF_PROCESS}}
    result = hipvit.train(
        arguments["data"],
        output=arguments["output"],
        distributed=True,
        callback=arguments["callback"],
        **{name: options[name] for name in options if name in _OF_PROCESS},
        **of_run,
    )
    if not leads:
        return None
    started.unlink(missing_ok=True)
    return result


def _continues(output: Path, started: Path) -> bool:
    """Whether an earlier attempt has written a checkpoint. Removes what one without a checkpoint has left."""
    if not started.exists():
        # A run of another call is an error of `hipvit.train`, and stays.
        if not output.exists() or not any(output.iterdir()):
            started.parent.mkdir(parents=True, exist_ok=True)
            started.touch()
        return False
    if any(output.glob("checkpoints/step-*")):
        return True
    shutil.rmtree(output, ignore_errors=True)
    return False
