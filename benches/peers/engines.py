"""The engines that run PyTorch's models in this process, one class each. A worker (worker.py) prepares one for a model, a
batch size and a dtype, and times it."""

import gc
import tempfile
import warnings
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch

from .vit import Loaded, load

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


class Engine(ABC):
    """Runs a model on batches of one size.

    End to end, u8 pixels in (pinned) host memory are copied to the device and normalised there, and f32 logits end in
    (pinned) host memory.
    """

    # Module that must be installed for the engine.
    package = "torch"
    memory_format = torch.contiguous_format

    def __init__(self, directory: Path, batch: int, dtype: str, device: str):
        self.device = torch.device(device)
        self.gpu = self.device.type == "cuda"
        if self.gpu:
            torch.cuda.set_device(self.device)
        self.batch, self.dtype = batch, DTYPES[dtype]
        self.loaded = load(directory)
        shape = (batch, *self.loaded.size, 3)
        self.pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(16))
        if self.gpu:
            self.pixels = self.pixels.pin_memory()
        mean, std = (torch.tensor(of).view(1, 3, 1, 1) for of in (self.loaded.mean, self.loaded.std))
        # (x / 255 - mean) / std as one multiplication and one addition.
        self.scale = (1 / (255 * std)).to(self.device)
        self.shift = (-mean / std).to(self.device)
        self.prepare(self.loaded)
        self.input = self.normalise(self.pixels.to(self.device)).clone()
        logits = self.forward(self.input)
        self.logits = torch.empty(logits.shape, dtype=torch.float32, pin_memory=self.gpu)

    @abstractmethod
    def prepare(self, loaded: Loaded) -> None:
        """Builds what `forward` runs. May take minutes."""

    @abstractmethod
    def forward(self, values):
        """Logits on the device from normalised values [B, 3, H, W] on it; may return before they are computed."""

    @staticmethod
    def version() -> str:
        return torch.__version__

    def options(self) -> dict[str, Any]:
        return {"model_source": self.loaded.source}

    def normalise(self, pixels):
        return self._normalise(pixels, self.scale, self.shift, self.dtype, self.memory_format)

    @staticmethod
    def _normalise(pixels, scale, shift, dtype, memory_format):
        values = pixels.permute(0, 3, 1, 2).to(torch.float32, memory_format=memory_format)
        return values.mul_(scale).add_(shift).to(dtype)

    def end_to_end(self) -> None:
        pixels = self.pixels.to(self.device, non_blocking=True)
        self.logits.copy_(self.forward(self.normalise(pixels)), non_blocking=True)
        self.synchronise()

    def device_only(self):
        return self.forward(self.input)

    def synchronise(self) -> None:
        if self.gpu:
            torch.cuda.synchronize()

    def logits_of(self, values) -> list[float]:
        """Of one image of normalised values [1, 3, H, W], in f32; it fills the batch."""
        values = values.to(self.device, self.dtype).expand(self.batch, -1, -1, -1).clone(memory_format=self.memory_format)
        logits = self.forward(values)
        self.synchronise()
        return logits[0].float().cpu().tolist()

    def memory(self) -> dict[str, int | None]:
        """The device memory that the model's runs need, weights and input included, without normalising."""
        if not self.gpu:
            return {}
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        for _ in range(2):
            self.device_only()
        self.synchronise()
        peak = torch.cuda.max_memory_allocated()
        # Replayed graphs own memory that the allocator neither counts as allocated nor can release.
        torch.cuda.empty_cache()
        peak = max(peak, torch.cuda.memory_reserved())
        weights = self.weight_bytes()
        return {"peak_bytes": peak, "weights_bytes": weights, "activations_bytes": peak - weights if weights else None}

    def weight_bytes(self) -> int | None:
        return sum(of.numel() * of.element_size() for of in self.loaded.module.parameters())


def is_convolutional(module: torch.nn.Module) -> bool:
    """Whether a module has convolutions of more than patches and points."""
    convolutions = (of for of in module.modules() if isinstance(of, torch.nn.Conv2d))
    return any(size > stride for of in convolutions for size, stride in zip(of.kernel_size, of.stride, strict=True))


class Eager(Engine):
    def prepare(self, loaded: Loaded) -> None:
        self.module = loaded.module.to(self.device, self.dtype)
        if is_convolutional(self.module):
            self.memory_format = torch.channels_last
            self.module = self.module.to(memory_format=self.memory_format)

    def forward(self, values):
        return self.module(values)


class Compiled(Eager):
    mode: str | None = None

    def prepare(self, loaded: Loaded) -> None:
        # Earlier compilations for other shapes would make this one dynamic.
        torch._dynamo.reset()
        super().prepare(loaded)
        self.compiled = torch.compile(self.module, mode=self.mode, dynamic=False)
        self._normalise = torch.compile(Engine._normalise, dynamic=False)
        values = torch.zeros(self.batch, 3, *loaded.size, dtype=self.dtype, device=self.device).to(memory_format=self.memory_format)
        # The first call compiles, the second warms up graphs, the third captures them.
        for _ in range(3):
            self.forward(values)
        self.synchronise()

    def forward(self, values):
        torch.compiler.cudagraph_mark_step_begin()
        return self.compiled(values)

    def options(self) -> dict[str, Any]:
        return {**super().options(), "mode": self.mode or "default"}


class MaxAutotune(Compiled):
    mode = "max-autotune"


class Onnx(Engine):
    """Base of the engines that read ONNX."""

    def prepare(self, loaded: Loaded) -> None:
        self.parameter_bytes = sum(of.numel() * self.dtype.itemsize for of in loaded.module.parameters())
        # Export on the CPU, so that nothing remains on the device.
        module = loaded.module.to("cpu", self.dtype)
        values = torch.zeros(self.batch, 3, *loaded.size, dtype=self.dtype)
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            # The tracing exporter is deprecated, and warns of every Python branch in timm that becomes a constant.
            warnings.simplefilter("ignore")
            path = Path(folder) / "model.onnx"
            torch.onnx.export(module, (values,), str(path), input_names=["pixels"], output_names=["logits"], dynamo=False, opset_version=17)
            self.build(path)

    @abstractmethod
    def build(self, path: Path) -> None:
        """Builds the engine from a file that goes away."""

    def weight_bytes(self) -> int | None:
        return self.parameter_bytes

    def memory(self) -> dict[str, int | None]:
        """Unknown: these libraries do not allocate through PyTorch."""
        return {"weights_bytes": self.parameter_bytes}


class OnnxRuntime(Onnx):
    package = "onnxruntime"

    @staticmethod
    def version() -> str:
        import onnxruntime

        return onnxruntime.__version__

    def build(self, path: Path) -> None:
        import onnxruntime

        offered = onnxruntime.get_available_providers()
        if not self.gpu:
            wanted = ["CPUExecutionProvider"]
        elif torch.version.hip:
            wanted = ["MIGraphXExecutionProvider", "ROCMExecutionProvider"]
        else:
            wanted = ["CUDAExecutionProvider"]
        self.provider = next((name for name in wanted if name in offered), None)
        if self.provider is None:
            raise RuntimeError(f"this ONNX Runtime has none of {', '.join(wanted)}, only {', '.join(offered)}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        provider = (self.provider, {"device_id": self.device.index or 0} if self.gpu else {})
        self.session = onnxruntime.InferenceSession(str(path), options, providers=[provider])
        if self.session.get_providers()[0] != self.provider:
            raise RuntimeError(f"ONNX Runtime fell back from {self.provider} to {self.session.get_providers()[0]}")
        self.result = torch.empty(self.session.get_outputs()[0].shape, dtype=self.dtype, device=self.device)
        # ONNX's numbers of the types, because numpy has no bf16.
        self.element = {torch.float32: 1, torch.float16: 10, torch.bfloat16: 16}[self.dtype]

    def forward(self, values):
        # Bind by address, so that values on the device stay there.
        at = (self.device.type, self.device.index or 0, self.element)
        binding = self.session.io_binding()
        self.synchronise()
        binding.bind_input("pixels", *at, list(values.shape), values.data_ptr())
        binding.bind_output("logits", *at, list(self.result.shape), self.result.data_ptr())
        # Returns when the results are complete.
        self.session.run_with_iobinding(binding)
        return self.result

    def options(self) -> dict[str, Any]:
        return {**super().options(), "provider": self.provider}


class OpenVino(Onnx):
    package = "openvino"

    @staticmethod
    def version() -> str:
        import openvino

        return openvino.__version__.split("-")[0]

    def build(self, path: Path) -> None:
        import openvino

        if self.gpu or self.dtype is not torch.float32:
            raise RuntimeError("OpenVINO is timed on the CPU in f32 alone")
        compiled = openvino.Core().compile_model(str(path), "CPU", {
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        })
        self.request = compiled.create_infer_request()

    def forward(self, values):
        self.request.infer({0: values.numpy()}, share_inputs=True)
        return torch.from_numpy(self.request.get_output_tensor(0).data)


class TensorRt(Onnx):
    package = "tensorrt"

    @staticmethod
    def version() -> str:
        import tensorrt

        return tensorrt.__version__

    def build(self, path: Path) -> None:
        import tensorrt

        if not self.gpu or torch.version.hip:
            raise RuntimeError("TensorRT needs an NVIDIA GPU")
        logger = tensorrt.Logger(tensorrt.Logger.WARNING)
        builder = tensorrt.Builder(logger)
        # Strongly typed: computation uses the types of the file. TensorRT 11 has no other mode.
        flag = getattr(tensorrt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
        network = builder.create_network(1 << int(flag) if flag is not None else 0)
        parser = tensorrt.OnnxParser(network, logger)
        if not parser.parse(path.read_bytes()):
            raise RuntimeError("; ".join(str(parser.get_error(i)) for i in range(parser.num_errors)))
        built = builder.build_serialized_network(network, builder.create_builder_config())
        if built is None:
            raise RuntimeError("TensorRT did not build an engine; standard error says why")
        self.runtime = tensorrt.Runtime(logger)
        self.engine = self.runtime.deserialize_cuda_engine(built)
        self.context = self.engine.create_execution_context()
        self.result = torch.empty(tuple(self.engine.get_tensor_shape("logits")), dtype=self.dtype, device=self.device)
        self.context.set_tensor_address("logits", self.result.data_ptr())

    def forward(self, values):
        self.context.set_tensor_address("pixels", values.data_ptr())
        if not self.context.execute_async_v3(torch.cuda.current_stream().cuda_stream):
            raise RuntimeError("TensorRT did not run the engine; standard error says why")
        return self.result


class MiGraphX(Onnx):
    package = "migraphx"

    @staticmethod
    def version() -> str:
        import migraphx

        return getattr(migraphx, "__version__", "unknown")

    def build(self, path: Path) -> None:
        import migraphx

        if not self.gpu or not torch.version.hip:
            raise RuntimeError("MIGraphX needs an AMD GPU and PyTorch for ROCm")
        self.program = migraphx.parse_onnx(str(path))
        self.program.compile(migraphx.get_target("gpu"), offload_copy=False)
        shapes = self.program.get_parameter_shapes()
        output = next(name for name in shapes if name != "pixels")
        self.result = torch.empty(shapes[output].lens(), dtype=self.dtype, device=self.device)
        self.arguments = {
            output: migraphx.argument_from_pointer(shapes[output], self.result.data_ptr()),
        }
        self.input_shape = shapes["pixels"]

    def forward(self, values):
        import migraphx

        self.arguments["pixels"] = migraphx.argument_from_pointer(self.input_shape, values.data_ptr())
        self.program.run_async(self.arguments, torch.cuda.current_stream().cuda_stream, "ihipStream_t")
        return self.result


ENGINES: dict[str, type[Engine]] = {
    "pytorch-eager": Eager,
    "pytorch-compile": Compiled,
    "pytorch-max-autotune": MaxAutotune,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "tensorrt": TensorRt,
    "migraphx": MiGraphX,
}
