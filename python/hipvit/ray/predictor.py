"""The class that runs in Ray Data's actors."""

from __future__ import annotations

from typing import Any, Literal, Optional

import numpy as np
import numpy.typing as npt

import hipvit

Task = Literal["embed", "classify"]


class Predictor:
    """Embeds or classifies batches of images; a class for ``ray.data.Dataset.map_batches``.

    >>> images = ray.data.read_images("photos")  # or read_binary_files(..., include_paths=True)
    >>> images.map_batches(
    ...     hipvit.ray.Predictor,
    ...     fn_constructor_kwargs={"model": "path/to/model", "task": "classify"},
    ...     concurrency=4, num_gpus=1, batch_size=256,
    ... )

    The images of a batch are in the first existing column of ``image`` (uint8 arrays), ``bytes`` (encoded) and ``path``. Other
    columns stay. The batch gains ``embedding``, or ``label``, ``index`` and ``probability`` of the most likely class. The column
    ``error`` has the reason if an image has no result; otherwise it is empty.
    """

    def __init__(self, model: Optional[str] = None, task: Task = "embed", **options: Any) -> None:
        if task not in ("embed", "classify"):
            raise hipvit.ArgumentError(f"task: {task} is not one of embed, classify")
        self.task = task
        self.model = hipvit.load(model, **options)
        if task == "classify" and not self.model.num_classes:
            raise hipvit.ArgumentError(f"task: {self.model.name} has no classification head; use task='embed'")

    def __call__(self, batch: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
        source = next((name for name in ("image", "bytes", "path") if name in batch), None)
        if source is None:
            raise hipvit.ArgumentError(f"batch: has the columns {', '.join(batch)}, but none of image, bytes, path")
        outputs = self.model.run(list(batch[source]), on_error="skip")
        errors = outputs.errors
        result: dict[str, Any] = {name: column for name, column in batch.items() if name not in ("image", "bytes")}
        if self.task == "embed":
            result["embedding"] = outputs.embeddings
        else:
            best = [top[0] if top else None for top in outputs.top(1)]
            result["label"] = np.array([p.label if p else "" for p in best], dtype=object)
            result["index"] = np.array([p.index if p else -1 for p in best], dtype=np.int32)
            result["probability"] = np.array([p.probability if p else np.nan for p in best], dtype=np.float32)
        result["error"] = np.array([str(errors.get(i, "")) for i in range(len(outputs))], dtype=object)
        return result
