"""MLServer's runtime for a ViT: decodes and resizes images with Pillow as timm does, and runs the model in OpenVINO."""

import base64
import io

import numpy as np
import openvino
from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput
from PIL import Image


class Vit(MLModel):
    async def load(self) -> bool:
        extra = self.settings.parameters.extra
        self.size, self.resized = extra["size"], extra["resized"]
        self.mean, self.std = np.float32(extra["mean"]), np.float32(extra["std"])
        self.resample = getattr(Image.Resampling, extra["interpolation"].upper())
        self.model = openvino.Core().compile_model(
            self.settings.parameters.uri,
            "CPU",
            {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": extra["threads"]},
        )
        self.request = self.model.create_infer_request()
        return True

    def pixels(self, encoded):
        image = Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGB")
        # The shorter side to the size before the crop from the middle.
        shorter = min(image.size)
        image = image.resize([int(self.resized * side / shorter) for side in image.size], self.resample)
        left, top = (int(round((side - self.size) / 2)) for side in image.size)
        image = image.crop((left, top, left + self.size, top + self.size))
        return ((np.asarray(image, np.float32) / 255 - self.mean) / self.std).transpose(2, 0, 1)

    async def predict(self, payload):
        batch = np.stack([self.pixels(encoded) for encoded in payload.inputs[0].data])
        self.request.infer({0: batch}, share_inputs=True)
        logits = self.request.get_output_tensor(0).data
        output = ResponseOutput(name="logits", shape=list(logits.shape), datatype="FP32", data=logits.ravel().tolist())
        return InferenceResponse(model_name=self.name, outputs=[output])
