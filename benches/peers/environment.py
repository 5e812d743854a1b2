"""Environment of a measurement."""

import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "timm", "triton", "onnxruntime", "onnxruntime-gpu", "openvino", "tensorrt", "migraphx")


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def os_name() -> str:
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, kernel {platform.release()}"
    except OSError:
        return platform.platform()


def driver() -> str | None:
    """Of an NVIDIA or an AMD GPU."""
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        if done.returncode == 0:
            return done.stdout.split("\n")[0].strip() or None
    except (OSError, subprocess.TimeoutExpired):
        pass
    try:
        return "amdgpu " + Path("/sys/module/amdgpu/version").read_text().strip()
    except OSError:
        return None


def environment(libraries: dict[str, str]) -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d"),
        "os": os_name(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "driver": driver(),
        "libraries": libraries,
    }


def versions() -> dict[str, str]:
    """Of the packages, and of what PyTorch was built with."""
    import torch

    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    found["torch"] = torch.__version__
    if torch.version.hip:
        found["hip"] = torch.version.hip
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
        if torch.backends.cudnn.is_available():
            found["cudnn"] = str(torch.backends.cudnn.version())
    return found


def describe(device: str) -> dict[str, Any]:
    """DEVICE of the schema."""
    import torch

    of = torch.device(device)
    if of.type == "cpu":
        return {"kind": "cpu", "name": cpu_name(), "arch": platform.machine(), "index": 0}
    properties = torch.cuda.get_device_properties(of)
    amd = torch.version.hip is not None
    arch = properties.gcnArchName if amd else f"sm_{properties.major}{properties.minor}"
    facts = {
        "kind": "rocm" if amd else "cuda",
        "name": properties.name,
        "arch": arch.split(":")[0],
        "index": of.index or 0,
    }
    # Older PyTorch does not report it.
    if hasattr(properties, "pci_bus_id"):
        facts["pci"] = f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
    return facts


def peaks(device: str, dtype: str) -> dict[str, float | None]:
    """PEAK of the schema as far as PyTorch can measure it: its fastest large GEMM, and a large copy, read and written."""
    import torch

    from .engines import DTYPES

    on = torch.device(device)
    gpu = on.type == "cuda"

    def seconds(call, runs: int) -> float:
        """The least of some runs."""
        best = float("inf")
        for _ in range(runs):
            if gpu:
                before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                before.record()
                call()
                after.record()
                after.synchronize()
                best = min(best, before.elapsed_time(after) / 1e3)
            else:
                start = time.perf_counter()
                call()
                best = min(best, time.perf_counter() - start)
        return best

    size = 8192 if gpu else 2048
    # Some GPUs multiply zeros faster.
    a, b = (torch.randn(size, size, device=on, dtype=torch.float32).to(DTYPES[dtype]) for _ in range(2))
    out = torch.empty_like(a)
    tflops = 2 * size**3 / seconds(lambda: torch.mm(a, b, out=out), 10) / 1e12
    source = torch.empty((2 << 30) if gpu else (256 << 20), dtype=torch.uint8, device=on).random_()
    target = torch.empty_like(source)
    gbps = 2 * source.numel() / seconds(lambda: target.copy_(source), 10) / 1e9
    return {"datasheet_tflops": None, "measured_tflops": tflops, "datasheet_gbps": None, "measured_gbps": gbps}
