"""The extension module's types. Everything here is what ``hipvit`` exports."""

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Optional, Union, final, overload

import numpy as np
import numpy.typing as npt

from hipvit._errors import ImageError
from hipvit._results import DeviceInfo, Prediction
from hipvit.types import Float32, Images

__all__ = [
    "GpuOutputs",
    "GpuTensor",
    "Model",
    "Outputs",
    "ZeroShot",
    "__VERSION__",
    "command_line",
    "devices",
    "load",
    "pull",
    "samples",
]

__VERSION__: str

def load(
    model: Union[str, PathLike[str], None] = None,
    device: Any = None,
    dtype: Any = None,
    batch: int = 8,
    labels: Union[str, PathLike[str], Iterable[str], None] = None,
    *,
    input: Literal["images", "pixel_values"] = "images",
    tokens: bool = False,
    hidden_layers: Optional[Sequence[int]] = None,
    image_size: Union[int, tuple[int, int], None] = None,
    threads: Optional[int] = None,
    parallel: str = "data",
    resize: Literal["host", "device"] = "host",
    reproducible: bool = False,
    strict: bool = False,
    hip_graphs: Literal["auto", "on", "off"] = "auto",
    sparse: Literal["auto", "on", "builtin", "off"] = "auto",
    all_reduce: Literal["auto", "direct", "library"] = "auto",
    collective_timeout: float = 300.0,
    max_flops: Optional[int] = None,
    plan_cache: Union[str, PathLike[str], None] = None,
) -> Model:
    """Load a model.

    ``model`` is a directory as timm or transformers write it, a ``.safetensors`` file beside its ``config.json``, or a name on the
    Hugging Face hub that is in its local cache (``pull`` downloads it). Without it: TinyViT32, the embedded classifier of
    handwritten digits.

    ``device`` is ``"auto"`` (the first GPU, else the CPU), ``"cpu"``, ``"hip"``, ``"hip:N"``, or several GPUs: ``"hip:0,1"``, ``"hip:all"``. ``gpu``, ``rocm`` and ``cuda`` are other
    names of ``hip``, so that a ``torch.device`` can be passed; ``HIPVIT_PROVIDER`` chooses between AMD's and NVIDIA's libraries.
    ``dtype`` is ``float32`` (the default), ``float16`` or ``bfloat16``: numpy's or torch's type, or a name as the command line takes it
    (``f32``, ``fp32``, ``float``, ``f16``, ``fp16``, ``half``, ``bf16``). On the CPU ``float16`` is that of the weights alone.
    ``batch`` is the maximum batch size: more images are run in several batches. ``labels`` are the names of the classes or a file
    of them. ``image_size`` is a side, or height and width. With ``input="pixel_values"`` the model takes what the libraries'
    processors return, float32 ``[B, 3, H, W]``. ``tokens`` and ``hidden_layers`` request these results. With ``reproducible`` an
    image's results have the same bits at any batch size; with ``strict`` NaN and infinity are errors.

    The other options have the names, values and meanings of the command line's: ``hipvit classify --help`` describes them.
    """

def pull(model: str, *, progress: Optional[Callable[[int, int], object]] = None) -> Path:
    """Download a model from the Hugging Face hub into its local cache. Returns the model's directory.

    ``model`` is ``ORG/NAME``, ``ORG/NAME@REVISION`` or the URL of the model's page.

    ``progress(done, total)`` is called with numbers of bytes; an exception that it raises stops the download, and the next one
    continues there. The environment variables are those of ``huggingface_hub``.
    """

def devices() -> list[DeviceInfo]:
    """The devices of this machine: the CPU, then each GPU."""

def command_line(arguments: Sequence[str]) -> int:
    """Run the command line, and return its exit code. The first argument is the program's name."""

def samples() -> list[tuple[str, bytes]]:
    """Ten handwritten digits, as name and PNG file, that the embedded model was not trained on."""

@final
class Model:
    """A loaded model. Any number of threads can call it at once; other Python threads run meanwhile.

    An image is a path, the bytes of an image file, a PIL image of any mode, or a uint8 array or tensor ``[H, W, 3]``. Every
    method takes one image, a sequence of them, mixed as you like, or an array ``[B, H, W, 3]``. Images of any size are resized and
    cropped as the model's library does it. With ``resize=False`` an array has the model's size already, and is not copied.

    Tensors of other libraries come through DLPack: without a copy from host memory. With ``resize=False`` or pixel values, one on the
    model's own GPU is read there, after the work of its library's current stream; any other on a GPU is copied to the host first.
    """

    def __call__(self, images: Images, *, resize: bool = True) -> Float32:
        """Logits, ``[B, classes]``: before softmax or sigmoid."""

    def run(
        self,
        images: Images,
        *,
        resize: bool = True,
        on_error: Literal["raise", "skip"] = "raise",
        progress: Optional[Callable[[int, int], object]] = None,
    ) -> Outputs:
        """All results. With ``on_error="skip"`` an image that fails has NaN in its row, and an error in ``Outputs.errors``.

        ``progress(done, total)`` is called after each image. An exception that it raises ends the run.
        """

    def run_on_gpu(self, images: Images, *, resize: bool = True) -> GpuOutputs:
        """All results, left on the model's GPU in its dtype: ``torch.from_dlpack(model.run_on_gpu(images).tokens)``. They are written when
        this returns. For models on one GPU."""

    def embed(self, images: Images, *, resize: bool = True, normalize: bool = False) -> Float32:
        """Embeddings, ``[B, num_features]``: the input of the classification head; of length 1 with ``normalize``."""

    def tokens(self, images: Images, *, resize: bool = True) -> Float32:
        """Patch tokens, ``[B, patches, D]``, of a model that was loaded with ``tokens=True``."""

    def top(self, images: Images, k: int = 5, *, resize: bool = True) -> list[list[Prediction]]:
        """The ``k`` most likely classes of each image, best first."""

    def zero_shot(
        self, labels: Union[str, Sequence[str]], templates: Union[str, Sequence[str], None] = None
    ) -> ZeroShot:
        """Labels to classify images by, of a model with a text tower (CLIP, SigLIP). A label is the text, or goes where a template
        has ``{}``, as in ``"a photo of a {}."``; of several templates the mean of the texts' embeddings is taken."""

    def embed_texts(self, texts: Union[str, Sequence[str]], *, normalize: bool = False) -> Float32:
        """Embeddings of texts, ``[texts, D]``, in the space of the images', of a model with a text tower; of length 1 with
        ``normalize``."""

    @overload
    def preprocess(self, images: Images, *, normalize: Literal[False]) -> npt.NDArray[np.uint8]: ...
    @overload
    def preprocess(self, images: Images, *, normalize: Literal[True] = True) -> Float32:
        """The model's input: float32 ``[B, 3, H, W]`` as the library's processor makes it, bit for bit; or, with
        ``normalize=False``, the resized and cropped images, uint8 ``[B, H, W, 3]``."""

    def close(self) -> None:
        """Free the model's memory when its last call has ended. It cannot be called any more."""

    def __enter__(self) -> Model: ...
    def __exit__(
        self,
        exception_type: Optional[type[BaseException]] = None,
        exception: Optional[BaseException] = None,
        traceback: Optional[TracebackType] = None,
    ) -> None: ...
    @property
    def name(self) -> str:
        """The model's name: on the hub, else that of its directory."""

    @property
    def architecture(self) -> str:
        """timm's name of the architecture, or transformers' class."""

    @property
    def labels(self) -> list[str]:
        """The names of the classes in the order of the logits; empty without a classification head."""

    @property
    def num_classes(self) -> int:
        """The number of classes; 0 without a classification head."""

    @property
    def num_features(self) -> int:
        """The length of an embedding."""

    @property
    def dlpack_device(self) -> Optional[tuple[int, int]]:
        """The model's GPU as DLPack's kind and number of a device; ``None`` on the CPU and on several GPUs."""

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the input, in pixels."""

    @property
    def device(self) -> str:
        """``cpu``, or ``hip:N``."""

    @property
    def no_gpu(self) -> Optional[str]:
        """Why ``device="auto"`` selected the CPU; ``None`` for every other choice, and on a GPU."""

    @property
    def dtype(self) -> str:
        """The compute precision: ``float32``, ``float16`` or ``bfloat16``."""

    @property
    def batch(self) -> int:
        """Maximum batch size."""

    @property
    def input(self) -> Literal["images", "pixel_values"]:
        """What the model takes."""

    @property
    def info(self) -> dict[str, Any]:
        """Facts about the model: its sizes, the number of its parameters, its preprocessing."""

@final
class ZeroShot:
    """Labels whose texts are embedded, for classifying images without a trained classifier. It keeps the model's memory.

    Images are those that the model takes.
    """

    def __call__(self, images: Images, *, resize: bool = True) -> Float32:
        """The labels' logits, ``[B, labels]``: before softmax (CLIP) or sigmoid (SigLIP)."""

    def run(
        self, images: Images, *, resize: bool = True, on_error: Literal["raise", "skip"] = "raise"
    ) -> Outputs:
        """All results of the model, with the labels' logits. ``on_error`` as in ``Model.run``."""

    def top(self, images: Images, k: int = 5, *, resize: bool = True) -> list[list[Prediction]]:
        """The ``k`` most likely labels of each image, best first."""

    @property
    def labels(self) -> list[str]:
        """The labels, in the order of the logits."""

    @property
    def embeddings(self) -> Float32:
        """``[labels, D]``: what images are compared with, each of length 1."""

    @property
    def truncated(self) -> list[str]:
        """The texts that were longer than the text tower's context, whose ends were left out."""

@final
class GpuTensor:
    """A tensor on a GPU, which ``torch.from_dlpack`` and the like take without a copy.

    The memory is freed with the last tensor that lies in it. Before another library's tensor gives it back, the whole device is waited
    for, as that library's work may still read it.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Literal["float32", "float16", "bfloat16"]: ...
    def __len__(self) -> int: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Optional[tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any: ...

@final
class GpuOutputs:
    """What a model computes for a number of images, in their order, on the model's GPU."""

    def __len__(self) -> int: ...
    @property
    def logits(self) -> Optional[GpuTensor]:
        """``[B, classes]``, before softmax or sigmoid; ``None`` if the model has no classification head."""

    @property
    def embeddings(self) -> GpuTensor:
        """``[B, D]``: the input of the classification head, or the model's own result if it has none."""

    @property
    def tokens(self) -> Optional[GpuTensor]:
        """``[B, patches, D]``, of a model that was loaded with ``tokens=True``."""

    @property
    def prefix_tokens(self) -> Optional[GpuTensor]:
        """``[B, prefix tokens, D]``: class, distillation and register tokens."""

    @property
    def hidden_layers(self) -> dict[int, GpuTensor]:
        """``[B, tokens, D]`` by block, of those that the model was loaded with."""

@final
class Outputs:
    """What a model computes for a number of images, in their order."""

    def __len__(self) -> int: ...
    @property
    def logits(self) -> Optional[Float32]:
        """``[B, classes]``, before softmax or sigmoid; ``None`` if the model has no classification head."""

    @property
    def probabilities(self) -> Optional[Float32]:
        """``[B, classes]``, after softmax or sigmoid."""

    @property
    def embeddings(self) -> Float32:
        """``[B, D]``: the input of the classification head, or the model's own result if it has none."""

    @property
    def tokens(self) -> Optional[Float32]:
        """``[B, patches, D]``, of a model that was loaded with ``tokens=True``."""

    @property
    def prefix_tokens(self) -> Optional[Float32]:
        """``[B, prefix tokens, D]``: class, distillation and register tokens."""

    @property
    def hidden_layers(self) -> dict[int, Float32]:
        """``[B, tokens, D]`` by block, of those that the model was loaded with."""

    @property
    def errors(self) -> dict[int, ImageError]:
        """The errors of images that failed, by position."""

    def top(self, k: int = 5) -> list[list[Prediction]]:
        """The ``k`` most likely classes of each image, best first; none of an image that failed."""
