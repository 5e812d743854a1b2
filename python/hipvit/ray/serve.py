"""A deployment of Ray Serve that classifies or embeds images. The next batch forms while one computes.

    serve run hipvit.ray.serve:app model=path/to/model num_gpus=1 replicas=4
    curl --data-binary @cat.jpg 'http://127.0.0.1:8000/?top=3'
    curl --data-binary @cat.jpg 'http://127.0.0.1:8000/?task=embed'
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any, Union

from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse

import hipvit

_LARGEST = 64 << 20


@serve.deployment(max_ongoing_requests=64)
class Classifier:
    """A model. Its handle has the methods ``classify`` and ``embed``, which take the bytes of an image file."""

    def __init__(self, model: Union[str, None] = None, **options: Any) -> None:
        self.model = hipvit.load(model, **options)
        self._run.set_max_batch_size(self.model.batch)

    @serve.batch(max_batch_size=8, batch_wait_timeout_s=0.0)
    async def _run(self, images: list[bytes]) -> list[Any]:
        outputs = await asyncio.to_thread(self.model.run, images, on_error="skip")
        errors = outputs.errors
        tops = outputs.top(self.model.num_classes)
        return [errors.get(i) or (tops[i], outputs.embeddings[i]) for i in range(len(images))]

    async def _one(self, image: bytes) -> Any:
        result = await self._run(image)
        if isinstance(result, hipvit.Error):
            raise result
        return result

    async def classify(self, image: bytes, top: int = 5) -> list[hipvit.Prediction]:
        classes, _ = await self._one(image)
        return list(classes[:top])

    async def embed(self, image: bytes) -> list[float]:
        _, embedding = await self._one(image)
        return [float(value) for value in embedding]

    async def __call__(self, request: Request) -> JSONResponse:
        try:
            top = int(request.query_params.get("top", "5"))
        except ValueError:
            return JSONResponse({"error": "top: is no number"}, status_code=400)
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > _LARGEST:
                return JSONResponse({"error": f"the image has more than {_LARGEST} bytes"}, status_code=413)
        try:
            if request.query_params.get("task") == "embed":
                return JSONResponse({"embedding": await self.embed(bytes(body))})
            classes = await self.classify(bytes(body), top)
        except hipvit.ImageError as error:
            return JSONResponse({"error": str(error), "kind": error.kind}, status_code=400)
        return JSONResponse({"classes": [asdict(prediction) for prediction in classes]})


def app(arguments: dict[str, str]) -> serve.Application:
    """``serve run hipvit.ray.serve:app NAME=VALUE …``: ``model``, ``device``, ``dtype``, ``batch``, ``replicas``, ``num_cpus``, ``num_gpus``."""
    known = {"model", "device", "dtype", "batch", "replicas", "num_cpus", "num_gpus"}
    unknown = sorted(set(arguments) - known)
    if unknown:
        raise hipvit.ArgumentError(f"{', '.join(unknown)}: not one of {', '.join(sorted(known))}")
    gpus, cpus = float(arguments.get("num_gpus", 0)), float(arguments.get("num_cpus", 1))
    options: dict[str, Any] = {"device": "hip" if gpus else "cpu", "batch": int(arguments.get("batch", 8))}
    if not gpus:
        options["threads"] = max(1, int(cpus))
    options.update({name: arguments[name] for name in ("device", "dtype") if name in arguments})
    deployment: Any = Classifier
    deployment = deployment.options(
        num_replicas=int(arguments.get("replicas", 1)), ray_actor_options={"num_cpus": cpus, "num_gpus": gpus}
    )
    return deployment.bind(arguments.get("model"), **options)
