"""Times depth, masks and boxes beside transformers with torch.compile, in one run: milliseconds from PIL images to NumPy arrays, medians of rounds in which
the engines take turns. The results are compared first.

    pip install ./python torch transformers pillow safetensors
    python benches/dense.py --device hip --dtype bfloat16 --batches 1,8

The models have the sizes of Depth-Anything-V2-Small, sam-vit-base and RT-DETR-R50, and random weights. Images have 640×480 pixels. SAM encodes each image and
finds the masks in one box. Of RT-DETR's boxes, the scores are compared, as their order depends on rounding. transformers prepares the images on the GPU, hipvit on the host.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, Callable

import numpy as np
import torch
import transformers as hf
from PIL import Image

BOX = (160, 120, 480, 360)
Run = Callable[[], list[np.ndarray]]


def randomise(model: torch.nn.Module) -> torch.nn.Module:
    """Weights with which results depend on the image."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=parameter[0].numel() ** -0.5)
    return model.eval()


def write_models(directory: Path) -> None:
    backbone = hf.Dinov2Config(hidden_size=384, num_attention_heads=6, image_size=518, patch_size=14, out_indices=[3, 6, 9, 12], reshape_hidden_states=False)
    depth = hf.DepthAnythingConfig(backbone_config=backbone, reassemble_hidden_size=384, neck_hidden_sizes=[48, 96, 192, 384], fusion_hidden_size=64)
    randomise(hf.DepthAnythingForDepthEstimation(depth)).save_pretrained(directory / "depth")
    hf.DPTImageProcessor(
        size={"height": 518, "width": 518}, keep_aspect_ratio=True, ensure_multiple_of=14, resample=3, image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
    ).save_pretrained(directory / "depth")
    randomise(hf.SamModel(hf.SamConfig())).save_pretrained(directory / "sam")
    hf.SamImageProcessor().save_pretrained(directory / "sam")
    randomise(hf.RTDetrForObjectDetection(hf.RTDetrConfig())).save_pretrained(directory / "boxes")
    hf.RTDetrImageProcessor().save_pretrained(directory / "boxes")


def pictures(count: int) -> list[Image.Image]:
    random = np.random.default_rng(1)
    small = random.integers(0, 256, (count, 12, 16, 3), dtype=np.uint8)
    return [Image.fromarray(pixels).resize((640, 480), Image.Resampling.BICUBIC) for pixels in small]


def hipvit_depth(directory: Path, arguments: argparse.Namespace) -> Callable[[list[Image.Image]], Run]:
    import hipvit

    model = hipvit.load(str(directory / "depth"), device=arguments.device, dtype=arguments.dtype, batch=8)
    return lambda images: lambda: model.depth(images)


def torch_model(
    directory: Path, kind: Any, arguments: argparse.Namespace, read: Callable[[Any, Any, list[tuple[int, int]]], list[np.ndarray]]
) -> Callable[[list[Image.Image]], Run]:
    """A model of images alone. `read` gets its processor, its outputs and the sizes of the images."""
    device, dtype = arguments.device.replace("hip", "cuda"), getattr(torch, arguments.dtype)
    processor = hf.AutoImageProcessor.from_pretrained(directory)
    model = kind.from_pretrained(directory, dtype=dtype).eval().to(device)
    model.forward = torch.compile(model.forward)

    def run(images: list[Image.Image]) -> list[np.ndarray]:
        inputs = processor(images, return_tensors="pt", device=device)
        with torch.inference_mode():
            outputs = model(pixel_values=inputs["pixel_values"].to(device, dtype))
        return read(processor, outputs, [(image.height, image.width) for image in images])

    return lambda images: lambda: run(images)


def torch_depth(directory: Path, arguments: argparse.Namespace) -> Callable[[list[Image.Image]], Run]:
    def read(processor: Any, outputs: Any, sizes: list[tuple[int, int]]) -> list[np.ndarray]:
        return [found["predicted_depth"].float().cpu().numpy() for found in processor.post_process_depth_estimation(outputs, target_sizes=sizes)]

    return torch_model(directory / "depth", hf.DepthAnythingForDepthEstimation, arguments, read)


def hipvit_masks(directory: Path, arguments: argparse.Namespace) -> Callable[[list[Image.Image]], Run]:
    import hipvit

    segmenter = hipvit.Segmenter(str(directory / "sam"), arguments.device, dtype=arguments.dtype)
    return lambda images: lambda: [segmenter.segment(segmenter.encode(image), boxes=[BOX])[0] for image in images]


def torch_masks(directory: Path, arguments: argparse.Namespace) -> Callable[[list[Image.Image]], Run]:
    device, dtype = arguments.device.replace("hip", "cuda"), getattr(torch, arguments.dtype)
    processor = hf.SamProcessor(hf.AutoImageProcessor.from_pretrained(directory / "sam"))
    model = hf.SamModel.from_pretrained(directory / "sam", dtype=dtype).eval().to(device)
    model.forward = torch.compile(model.forward)

    def run(image: Image.Image) -> np.ndarray:
        inputs = processor(image, input_boxes=[[list(BOX)]], return_tensors="pt", device=device)
        with torch.inference_mode():
            outputs = model(pixel_values=inputs["pixel_values"].to(device, dtype), input_boxes=inputs["input_boxes"].to(device, dtype))
            masks = processor.image_processor.post_process_masks(
                outputs.pred_masks.float(), inputs["original_sizes"].tolist(), inputs["reshaped_input_sizes"].tolist())
        return masks[0].cpu().numpy()

    return lambda images: lambda: [run(image) for image in images]


def hipvit_boxes(directory: Path, arguments: argparse.Namespace) -> Callable[[list[Image.Image]], Run]:
    import hipvit

    detector = hipvit.Detector(str(directory / "boxes"), arguments.device, dtype=arguments.dtype)

    def scores(images: list[Image.Image]) -> list[np.ndarray]:
        return [np.array([found.score for found in of_image]) for of_image in detector.detect(images, threshold=0.0)]

    return lambda images: lambda: scores(images)


def torch_boxes(directory: Path, arguments: argparse.Namespace) -> Callable[[list[Image.Image]], Run]:
    def read(processor: Any, outputs: Any, sizes: list[tuple[int, int]]) -> list[np.ndarray]:
        found = processor.post_process_object_detection(outputs, threshold=0.0, target_sizes=sizes)
        return [of_image["scores"].float().cpu().numpy() for of_image in found]

    return torch_model(directory / "boxes", hf.RTDetrForObjectDetection, arguments, read)


def agreement(task: str, ours: list[np.ndarray], theirs: list[np.ndarray]) -> str:
    if task == "depth":
        error = max(np.abs(a - b).max() / np.abs(b).max() for a, b in zip(ours, theirs))
        return f"largest difference {error:.1e} of the largest depth"
    if task == "boxes":
        return f"largest difference of scores {max(np.abs(a - b).max() for a, b in zip(ours, theirs)):.1e}"
    return f"{100 * np.mean([np.mean(a == b) for a, b in zip(ours, theirs)]):.1f} % of the masks' pixels are equal"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--batches", default="1")
    parser.add_argument("--tasks", default="depth,masks,boxes")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    tasks: dict[str, list[Any]] = {"depth": [hipvit_depth, torch_depth], "masks": [hipvit_masks, torch_masks], "boxes": [hipvit_boxes, torch_boxes]}
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        write_models(directory)
        for task in arguments.tasks.split(","):
            engines = tasks[task]
            cases = [engine(directory, arguments) for engine in engines]
            for batch in map(int, arguments.batches.split(",")):
                runs = [case(pictures(batch)) for case in cases]
                results = [[run() for _ in range(3)][-1] for run in runs]
                times: list[list[float]] = [[], []]
                for _ in range(arguments.rounds):
                    for run, of_run in zip(runs, times):
                        start = time.perf_counter()
                        run()
                        of_run.append(1e3 * (time.perf_counter() - start))
                ours, theirs = map(statistics.median, times)
                print(f"{task}, {batch} images, {arguments.dtype}: hipvit {ours:.2f} ms, torch.compile {theirs:.2f} ms ({theirs / ours:.2f}×); {agreement(task, *results)}", flush=True)


if __name__ == "__main__":
    main()
