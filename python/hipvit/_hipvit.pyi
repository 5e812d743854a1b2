"""The extension module's types. Everything here is what ``hipvit`` exports."""

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Optional, Union, final, overload

import numpy as np
import numpy.typing as npt

from hipvit._errors import ImageError
from hipvit._results import Detection, DeviceInfo, Prediction, TrainingResult
from hipvit.types import Float32, Images, SupportsDLPack

__all__ = [
    "AttentionPattern",
    "Detector",
    "Differentiable",
    "GpuOutputs",
    "GpuTensor",
    "ImageEmbedding",
    "Model",
    "Outputs",
    "Segmenter",
    "ZeroShot",
    "__VERSION__",
    "command_line",
    "devices",
    "load",
    "new_model",
    "pull",
    "samples",
    "train",
]

__VERSION__: str

def load(
    model: Union[str, PathLike[str], None] = None,
    device: Any = None,
    dtype: Any = None,
    batch: int = 8,
    labels: Union[str, PathLike[str], Iterable[str], None] = None,
    *,
    input: Literal["images", "pixel_values", "tensors"] = "images",
    tokens: bool = False,
    hidden_layers: Optional[Sequence[int]] = None,
    image_size: Union[int, tuple[int, int], None] = None,
    packed: Optional[int] = None,
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
    mean: Union[Sequence[float], float, None] = None,
    std: Union[Sequence[float], float, None] = None,
    crop_pct: Optional[float] = None,
    extent: Optional[dict[str, int]] = None,
    calibrate: Sequence[Union[str, PathLike[str]]] = (),
) -> Model:
    """Load a model.

    Without ``model``, this loads TinyViT32, the embedded classifier of handwritten digits.

    - ``model``: a directory that timm or transformers wrote, a ``.safetensors`` file with a ``config.json`` in its directory, an
      ``.onnx`` file, or a name on the Hugging Face hub that is in the local cache (``pull`` downloads it).
    - ``device``: ``"auto"`` (the first GPU, or the CPU if there is none), ``"cpu"``, ``"hip"``, ``"hip:N"``, or several
      GPUs: ``"hip:0,1"``, ``"hip:all"``. ``gpu``, ``rocm`` and
      ``cuda`` are aliases of ``hip``, so that a ``torch.device`` can be passed. ``HIPVIT_PROVIDER`` selects AMD's or NVIDIA's libraries.
    - ``dtype``: ``float32`` (the default), ``float16`` or ``bfloat16``. It is a type of numpy or torch, or a name of the command line
      (``f32``, ``fp32``, ``float``, ``f16``, ``fp16``, ``half``, ``bf16``). On the CPU, ``float16`` applies only to the weights.
      ``"auto"`` uses the fastest dtype whose logits or embeddings have a cosine of at least 0.999 to those in f32, for each image
      of ``calibrate``: image files or directories.
    - ``batch``: the maximum batch size. More images are run in several batches.
    - ``labels``: the names of the classes, or a file with them.
    - ``image_size``: a side, or height and width.
    - ``packed``: the number of patches in a sequence, into which several images of any aspect ratio are packed. For timm's
      NaFlexViT and transformers' SigLIP 2 with NaFlex.
    - ``input``: with ``"pixel_values"`` the model takes the output of the libraries' processors, float32 ``[B, 3, H, W]``.
      ``"tensors"`` loads an ONNX model only for ``run`` with a dictionary.
    - ``mean``, ``std``, ``crop_pct``: preprocessing of an ONNX model that has no configuration beside its file.
    - ``extent``: numbers of extents that an ONNX file leaves open, such as ``{"height": 224, "width": 224}``.
    - ``tokens``, ``hidden_layers``: request these results.
    - ``reproducible``: an image's results have the same bits at any batch size.
    - ``strict``: NaN and infinity are errors.

    The other options have the names, values and meanings of the command line's options, which ``hipvit classify --help`` describes.
    """

def pull(model: str, *, progress: Optional[Callable[[int, int], object]] = None) -> Path:
    """Download a model from the Hugging Face hub into its local cache. Returns the model's directory.

    ``model`` is ``ORG/NAME``, ``ORG/NAME@REVISION`` or the URL of the model's page.

    ``progress(done, total)`` is called with numbers of bytes. An exception that it raises stops the download, and the next call
    continues it. The environment variables are those of ``huggingface_hub``.
    """

def devices() -> list[DeviceInfo]:
    """The devices of this machine: the CPU, then each GPU."""

def command_line(arguments: Sequence[str]) -> int:
    """Run the command line, and return its exit code. The first argument is the program's name."""

def samples() -> list[tuple[str, bytes]]:
    """Names and PNG files of ten handwritten digits that the embedded model was not trained on."""

def train(
    data: Union[str, PathLike[str]],
    model: Union[str, PathLike[str], None] = None,
    *,
    output: Union[str, PathLike[str]],
    recipe: Union[str, PathLike[str], None] = None,
    epochs: Optional[int] = None,
    batch: Optional[int] = None,
    lr: Optional[float] = None,
    lora: Optional[int] = None,
    freeze: Union[int, Literal["backbone", "image", "text"], None] = None,
    seed: Optional[int] = None,
    device: Any = None,
    dtype: Any = None,
    threads: Optional[int] = None,
    resume: bool = False,
    holdout: float = 0.0,
    image_size: Optional[int] = None,
    skip_broken: bool = False,
    memory: Union[str, int, float, None] = None,
    tune: bool = False,
    log_every: int = 10,
    distributed: bool = False,
    callback: Optional[Callable[[dict[str, Any]], object]] = None,
    **overrides: Any,
) -> TrainingResult:
    """Train a model on labelled images, on pairs of images and captions, on images of texts, or on images with depths or masks, as the command
    ``hipvit train`` does. ``output`` gets the same files.

    - ``data``: a directory with one subdirectory per class, a list of images with captions, texts or maps, or another dataset that the command reads.
    - ``model``: a directory or a name on the hub to fine-tune, or a ``config.json`` or timm architecture that gets random weights.
      ``image_size`` is that of an architecture.
    - ``output``: an empty or new directory. With ``resume=True``, a run that continues after its newest checkpoint, with its own
      model and recipe.
    - ``recipe``: a TOML file, ``"scratch-small"`` (the default), ``"digits"``, ``"fine-tune"``, ``"pairs"`` (the default for pairs), ``"texts"`` (the default
      for a model that makes texts, such as TrOCR) or ``"maps"`` (the default for a model of depth, and for SAM).
      The arguments ``epochs``, ``batch``, ``lr``, ``lora`` (a rank), ``freeze`` and ``seed`` override its keys. So do ``overrides``, such
      as ``clip_norm=0.5`` or ``optimizer={"betas": [0.9, 0.95]}``.
    - ``device``, ``dtype``: as in ``load``, but one device.
    - ``threads``: number of threads on the CPU.
    - ``holdout``: the share of images that is held out for validation.
    - ``skip_broken``: replace broken images instead of raising an exception.
    - ``memory``: limit of the device's memory, such as ``"8G"``, or ``0.5`` of a GPU's. A resumed run may have another one.
    - ``tune``: measure first which kernels are fastest on the GPU, and keep the choices for later runs.
    - ``distributed``: this process is a rank of a launcher such as torchrun, by its environment variables. Rank 0 has ``output`` and
      calls ``callback``.
    - ``callback``: is called with a dict. Its ``"event"`` is ``"step"`` (each ``log_every`` steps), ``"epoch"``, ``"checkpoint"``,
      ``"skipped_step"``, ``"smaller_micro_batches"`` or ``"broken_image"``. Steps and epochs have the figures of ``log.jsonl``, such as
      ``reading`` with ``exact_lines`` and ``character_error_rate`` for texts, and ``figures`` for maps.

    An exception that the callback raises, or Ctrl-C, ends the run after the current step. It writes a checkpoint first.
    """

@final
class AttentionPattern:
    """Score and mask of ``hipvit.attention``, checked. Its code is compiled on first use, and kept.

    Operands are queries, keys and values, ``[batch, tokens, heads, head_dim]``, and the captured tensors: float32 and int32, or
    float16 and bfloat16 on a GPU. All are row-major.
    """

    def __new__(cls, json: str) -> AttentionPattern: ...
    def forward(
        self, scale: float, scalars: Sequence[float], operands: Sequence[npt.NDArray[Any]], *, has_derivative: bool = False
    ) -> list[Float32]:
        """Attention on the CPU: the result, and ``ln Σ e^s`` if the derivative needs it."""

    def backward(self, scale: float, scalars: Sequence[float], operands: Sequence[npt.NDArray[Any]]) -> list[Float32]:
        """Gradients of the operands that are floats. The operands are followed by ``forward``'s results and the gradient of the first."""

    def forward_on_gpu(
        self,
        scale: float,
        scalars: Sequence[float],
        operands: Sequence[SupportsDLPack],
        results: Sequence[SupportsDLPack],
        stream: int,
    ) -> None:
        """Submits ``forward`` to ``stream``, the driver's handle of a stream of the tensors' GPU."""

    def backward_on_gpu(
        self,
        scale: float,
        scalars: Sequence[float],
        operands: Sequence[SupportsDLPack],
        gradients: Sequence[Optional[SupportsDLPack]],
        stream: int,
    ) -> None:
        """Submits ``backward`` to ``stream``, the driver's handle of a stream of the tensors' GPU. ``None`` leaves out the gradient of a
        captured tensor."""

@final
class Model:
    """A loaded model. Any number of threads can call it concurrently. A call releases the GIL.

    An image is a path, the bytes of an image file, a PIL image of any mode, or a uint8 array or tensor ``[H, W, 3]``. Every
    method takes one image, a sequence of images of any kinds, or an array ``[B, H, W, 3]``. Images of any size are resized and
    cropped as in the model's library. With ``resize=False`` an array must have the model's size, and is not copied.

    Tensors of other libraries are read through DLPack, without a copy if they are in host memory. With ``resize=False`` or pixel values,
    a tensor on the model's GPU is read there, after the work of its library's current stream. Other GPU tensors are first copied
    to the host.
    """

    def __call__(self, images: Images, *, resize: bool = True) -> Float32:
        """Logits, ``[B, classes]``: before softmax or sigmoid."""

    @overload
    def run(  # type: ignore[overload-overlap]  # a dictionary is never an image
        self, images: dict[str, Any]
    ) -> dict[str, npt.NDArray[Any]]:
        """The outputs of the model by name, of the arrays for its ``inputs`` by name. Floating-point arrays become float32, and
        integers must fit into 32 bits. Extents that an ONNX file leaves open may differ from call to call."""

    @overload
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
        """All results on the model's GPU in its dtype: ``torch.from_dlpack(model.run_on_gpu(images).tokens)``. They are complete when
        this returns. Needs a model on one GPU."""

    def embed(self, images: Images, *, resize: bool = True, normalize: bool = False) -> Float32:
        """Embeddings, ``[B, num_features]``: the input of the classification head. ``normalize`` scales them to length 1."""

    def depth(self, images: Images) -> list[Float32]:
        """The depths of each image, ``[H, W]``, of a model that estimates depth. Images may have any sizes. Metric depths are in metres,
        relative ones larger for nearer points."""

    def tokens(self, images: Images, *, resize: bool = True) -> Float32:
        """Patch tokens, ``[B, patches, D]``, of a model that was loaded with ``tokens=True``."""

    def top(self, images: Images, k: int = 5, *, resize: bool = True) -> list[list[Prediction]]:
        """The ``k`` most likely classes of each image, best first."""

    def zero_shot(
        self, labels: Union[str, Sequence[str]], templates: Union[str, Sequence[str], None] = None
    ) -> ZeroShot:
        """A classifier with these labels, for a model with a text tower (CLIP, SigLIP). A label is the text, or replaces ``{}`` in a
        template such as ``"a photo of a {}."``. Several templates give the mean of the texts' embeddings."""

    def embed_texts(self, texts: Union[str, Sequence[str]], *, normalize: bool = False) -> Float32:
        """Embeddings of texts, ``[texts, D]``, in the space of the images' embeddings. Needs a model with a text tower. ``normalize``
        scales them to length 1."""

    def generate(
        self,
        images: Images,
        max_tokens: Optional[int] = None,
        *,
        temperature: Optional[float] = None,
        top_k: Optional[int] = None,
        top_p: Optional[float] = None,
        seed: int = 0,
        speculate: int = 0,
        draft_model: Optional[Union[str, PathLike[str]]] = None,
        beams: Optional[int] = None,
        prompt: Optional[str] = None,
    ) -> list[str]:
        """The text of each image, for a model with a decoder (TrOCR, Donut, BLIP, SmolVLM). A text has at most ``max_tokens`` tokens, by default the
        number in the model's files.

        Each token is the most likely one. With ``temperature``, ``top_k`` or ``top_p`` it is a random one: among the ``top_k`` most likely
        tokens, or the most likely ones of total probability ``top_p``. The same ``seed`` gives the same texts. With
        ``speculate``, up to that many tokens are guessed from repetitions in a text, or by the smaller model ``draft_model``, and checked in
        one step. The text is the same.
        With ``beams``, the most likely texts are continued together, and the best one is returned; the default is that of the model's files.
        The text continues ``prompt``, such as a task of Donut or a question for SmolVLM, and does not repeat it.
        """

    @overload
    def preprocess(self, images: Images, *, normalize: Literal[False]) -> npt.NDArray[np.uint8]: ...
    @overload
    def preprocess(self, images: Images, *, normalize: Literal[True] = True) -> Float32:
        """The model's input: float32 ``[B, 3, H, W]``, equal to the output of the library's processor bit for bit. With
        ``normalize=False``, the resized and cropped images, uint8 ``[B, H, W, 3]``."""

    def close(self) -> None:
        """Free the model's memory after its last call has ended. Later calls fail."""

    def __enter__(self) -> Model: ...
    def __exit__(
        self,
        exception_type: Optional[type[BaseException]] = None,
        exception: Optional[BaseException] = None,
        traceback: Optional[TracebackType] = None,
    ) -> None: ...
    @property
    def name(self) -> str:
        """The model's name on the hub, or that of its directory."""

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
        """The model's GPU as DLPack's device type and number. ``None`` on the CPU and on several GPUs."""

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the input, in pixels."""

    @property
    def device(self) -> str:
        """``cpu``, or ``hip:N``."""

    @property
    def no_gpu(self) -> Optional[str]:
        """Reason why ``device="auto"`` selected the CPU. ``None`` on a GPU, and for other devices."""

    @property
    def dtype(self) -> str:
        """The compute precision: ``float32``, ``float16`` or ``bfloat16``."""

    @property
    def batch(self) -> int:
        """Maximum batch size."""

    @property
    def input(self) -> Literal["images", "pixel_values", "tensors"]:
        """Kind of the model's input."""

    @property
    def inputs(self) -> dict[str, tuple[str, list[Union[int, str]]]]:
        """Dtype and shape of the inputs by name. In a shape, ``"B"`` is the batch size."""

    @property
    def outputs(self) -> dict[str, tuple[str, list[Union[int, str]]]]:
        """Dtype and shape of the outputs by name. In a shape, ``"B"`` is the batch size, and ``"≤100"`` depends on the data."""

    @property
    def info(self) -> dict[str, Any]:
        """Facts about the model: its sizes, the number of its parameters, its preprocessing."""

def new_model(
    model: Union[str, PathLike[str]],
    directory: Union[str, PathLike[str]],
    classes: Sequence[str],
    image_size: Optional[int],
    seed: int,
) -> None:
    """Write the model that training starts from: a checkpoint with a classifier for the classes, or a new model."""

@final
class Differentiable:
    """A model as a function of its images and weights, with its derivative. It has no state, so copies share it."""

    def __new__(
        cls,
        model: Union[str, PathLike[str]],
        *,
        device: Any = None,
        dtype: Any = None,
        input: Literal["images", "pixel_values"] = "pixel_values",
        image_size: Union[int, tuple[int, int], None] = None,
        threads: Optional[int] = None,
    ) -> Differentiable: ...
    @property
    def weights(self) -> list[tuple[str, tuple[int, ...], npt.NDArray[np.int64]]]:
        """Name, shape and parts of each weight. The rows of the parts are: first element in the weight, index of the tensor, first
        element in the tensor, number of elements. All other elements are zero."""

    def tensors(self) -> dict[str, Optional[Float32]]:
        """The elements of each tensor of the checkpoint. ``None`` for integers."""

    @property
    def frozen(self) -> dict[str, str]:
        """Reason why a tensor has no gradient, by the tensor's name."""

    def dtypes(self, is_backward: bool) -> list[str]:
        """Dtypes in which a pass reads the weights from GPU memory. The last one of the backward pass is that of the gradient."""

    def forward(self, images: Any, weights: Sequence[Any]) -> Any:
        """The logits ``[B, classes]``: an array, or a ``GpuTensor`` if the images are on the GPU."""

    def backward(self, images: Any, weights: Sequence[Any], gradient: Any) -> list[Any]:
        """The gradient of each weight, of the kind of the images."""

    def save(self, directory: Union[str, PathLike[str]], tensors: dict[str, Float32]) -> None:
        """Write the model with new elements of some tensors, in the form of the checkpoint."""

    def __copy__(self) -> Differentiable: ...
    def __deepcopy__(self, _memo: Any) -> Differentiable: ...
    @property
    def num_classes(self) -> int:
        """The number of classes."""

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the images, in pixels."""

    @property
    def device(self) -> str:
        """``cpu``, or ``hip:N``."""

    @property
    def dtype(self) -> str:
        """Dtype of activations and gradients."""

    @property
    def dlpack_device(self) -> Optional[tuple[int, int]]:
        """The GPU as DLPack's device type and number. ``None`` on the CPU."""

@final
class Detector:
    """RT-DETR, or an ONNX file of another detector. Any number of threads can call it at once.

    - ``model``: a directory of transformers' RT-DETR or RT-DETRv2, its name on the Hugging Face hub, from the local cache, or an ONNX file.
    - ``batch``: the maximum number of images that are run together.
    - The other options are those of ``load``, but for those of images and classes.
    """

    def __new__(
        cls, model: Union[str, PathLike[str]], device: Any = None, dtype: Any = None, batch: int = 8, **options: Any
    ) -> "Detector": ...

    def detect(self, images: Images, threshold: float = 0.5) -> list[list[Detection]]:
        """The objects of each image whose score is above ``threshold``, the best first, as ``post_process_object_detection`` of transformers."""

    @property
    def labels(self) -> list[str]:
        """The names of the classes."""

    @property
    def name(self) -> str:
        """The name of the model."""

    @property
    def device(self) -> str:
        """The device in use."""

@final
class ImageEmbedding:
    """An image that a ``Segmenter`` has encoded."""

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the image."""

    def values(self) -> Float32:
        """The channels of each patch, ``[patches, channels]``."""

@final
class Segmenter:
    """SAM, which finds the masks of objects at points and in boxes. Any number of threads can call it at once.

    - ``model``: a directory of transformers' ``SamModel``, or its name on the Hugging Face hub, from the local cache.
    - ``batch``: the maximum number of prompts that are decoded together.
    - The other options are those of ``load``, but for those of images and classes.
    """

    def __new__(
        cls, model: Union[str, PathLike[str]], device: Any = None, dtype: Any = None, batch: int = 8, **options: Any
    ) -> "Segmenter": ...

    def encode(self, image: Images) -> ImageEmbedding:
        """Encodes one image of any size."""

    def segment(
        self,
        image: Union[Images, ImageEmbedding],
        *,
        points: Optional[Sequence[Sequence[float]]] = None,
        labels: Optional[Sequence[int]] = None,
        boxes: Optional[Sequence[Sequence[float]]] = None,
    ) -> tuple[npt.NDArray[np.bool_], Float32]:
        """The masks of each object, ``[objects, masks, H, W]``, and their scores, ``[objects, masks]``.

        ``points``, ``(x, y)`` in pixels, are of one object if their label is 1, the default, and not of it if it is 0. Each of the ``boxes``,
        ``(left, top, right, bottom)``, is an object. Points may be given with a single box.
        """

    @property
    def name(self) -> str:
        """The name of the model."""

    @property
    def device(self) -> str:
        """The device in use."""

@final
class ZeroShot:
    """A zero-shot classifier with embedded labels. It keeps the model's memory.

    It takes the same images as the model.
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
        """Embeddings of the labels, ``[labels, D]``, each of length 1."""

    @property
    def truncated(self) -> list[str]:
        """The texts that were longer than the text tower's context and were truncated."""

@final
class GpuTensor:
    """A tensor on a GPU, which ``torch.from_dlpack`` and similar functions import without a copy.

    The memory is freed with its last tensor. Before another library's tensor frees it, the whole device is synchronised,
    because that library's work may still read it.
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
    """Outputs of a model for images, in their order, on the model's GPU."""

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
    """Outputs of a model for images, in their order."""

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
        """The ``k`` most likely classes of each image, best first. Empty for an image that failed."""
