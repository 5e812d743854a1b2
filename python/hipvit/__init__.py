"""Vision Transformers from pixel to logit on AMD GPUs, NVIDIA GPUs and the CPU.

>>> import hipvit
>>> model = hipvit.load()  # the embedded classifier of digits; or a directory, or a name on the hub
>>> name, image = hipvit.samples()[7]
>>> model.top(image, k=1)[0][0].label
'seven'
>>> model([image, image]).shape
(2, 10)

``hipvit.attention`` computes attention with any mask and score, which are expressions of ``hipvit.patterns``.

``hipvit.train`` trains a model on labelled images.

``hipvit.torch`` has an operator for PyTorch, and ``hipvit.ray`` runs on a Ray cluster. Neither is imported here.
"""

from hipvit import patterns
from hipvit._attention import attention
from hipvit._errors import (
    ArgumentError,
    ClosedError,
    ConfigError,
    DeviceError,
    Error,
    ForkError,
    GraphError,
    HubError,
    ImageError,
    InputOutputError,
    InternalError,
    NonFiniteError,
    NotFoundError,
    OutOfMemoryError,
    WeightsError,
)
from hipvit._hipvit import __VERSION__ as __version__
from hipvit._hipvit import (
    Detector,
    GpuOutputs,
    GpuTensor,
    ImageEmbedding,
    Model,
    Outputs,
    Segmenter,
    ZeroShot,
    devices,
    load,
    pull,
    samples,
    train,
)
from hipvit._results import Detection, DeviceInfo, Prediction, TrainingResult

__all__ = [
    "ArgumentError",
    "ClosedError",
    "ConfigError",
    "Detection",
    "Detector",
    "DeviceError",
    "DeviceInfo",
    "Error",
    "ForkError",
    "GpuOutputs",
    "GpuTensor",
    "GraphError",
    "HubError",
    "ImageEmbedding",
    "ImageError",
    "InputOutputError",
    "InternalError",
    "Model",
    "NonFiniteError",
    "NotFoundError",
    "OutOfMemoryError",
    "Outputs",
    "Prediction",
    "Segmenter",
    "TrainingResult",
    "WeightsError",
    "ZeroShot",
    "__version__",
    "attention",
    "devices",
    "load",
    "patterns",
    "pull",
    "samples",
    "train",
]
