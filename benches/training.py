"""Times training steps beside PyTorch, on an NVIDIA GPU or the CPU: milliseconds, medians of rounds in which all take turns.

    python3 benches/peers/random_model.py target/models vit_small_patch16_224
    cargo bench -p hipvit-train --bench training --no-run
    HIPVIT_PROVIDER=target/release/libhip_on_cuda.so python3 benches/training.py target/models/vit_small_patch16_224 --batch 256 \\
        --hipvit target/release/deps/training-…

PyTorch trains the same graph (timm's, or that of benches/peers/vit.py where timm is missing) in bf16 by autocast, with fused AdamW and
clipping, eager and with torch.compile. Its batch is on the device already; hipvit's pixels come from the host in each step.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))
from peers import vit  # noqa: E402


class PyTorch:
    def __init__(self, directory, batch, device, compiled):
        loaded = vit.load(directory)
        self.module = loaded.module.to(device).train()
        for parameter in self.module.parameters():
            parameter.requires_grad_(True)
        self.device, self.batch = device, batch
        self.images = torch.randn(batch, 3, *loaded.size, device=device)
        with torch.no_grad():
            self.classes = self.module(self.images[:1]).shape[1]
        self.targets = torch.arange(batch, device=device) * 7 % self.classes
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=1e-4, weight_decay=0.05, fused=device == "cuda")
        self.run = torch.compile(self.loss) if compiled else self.loss
        begun = time.perf_counter()
        self.step()
        self.synchronize()
        self.first_s = time.perf_counter() - begun
        for _ in range(3):
            self.step()

    def loss(self, images, targets):
        with torch.autocast(self.device, torch.bfloat16):
            return F.cross_entropy(self.module(images), targets, label_smoothing=0.1)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.run(self.images, self.targets).backward()
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        self.optimizer.step()

    def synchronize(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def round(self, steps):
        self.synchronize()
        begun = time.perf_counter()
        for _ in range(steps):
            self.step()
        self.synchronize()
        return (time.perf_counter() - begun) * 1e3 / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--hipvit", required=True, help="the compiled benches/training.rs")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20, help="steps of a round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--engines", default="hipvit,hipvit-fp8,eager,compile", help="hipvit-fp8 has the linear layers in FP8")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    times, first, peak = {}, {}, {}
    for _ in range(arguments.rounds):
        for engine in arguments.engines.split(","):
            if engine.startswith("hipvit"):
                dtype = engine.removeprefix("hipvit").removeprefix("-") or "bf16"
                command = [arguments.hipvit, arguments.model, arguments.batch, arguments.steps, 1, dtype, "hip" if device == "cuda" else "cpu"]
                output = subprocess.run([str(part) for part in command], capture_output=True, text=True)
                if output.returncode:
                    sys.exit(f"{arguments.hipvit}: {output.stdout}{output.stderr}")
                row = json.loads(output.stdout.splitlines()[-1])
                ms, first_s = row["ms"], row["first_step_s"]
            else:
                if device == "cuda":
                    torch.cuda.reset_peak_memory_stats()
                peer = PyTorch(arguments.model, arguments.batch, device, engine == "compile")
                ms, first_s = peer.round(arguments.steps), peer.first_s
                if device == "cuda":
                    peak[engine] = torch.cuda.max_memory_allocated() / 1e9
                del peer
                if device == "cuda":
                    torch.cuda.empty_cache()
            times.setdefault(engine, []).append(ms)
            first.setdefault(engine, first_s)
    card = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(f"{arguments.model.name}, batch {arguments.batch}, bf16 or FP8, {card}, PyTorch {torch.__version__}")
    for engine, values in times.items():
        ms = statistics.median(values)
        print(f"{engine:12} {ms:9.2f} ms  {arguments.batch * 1e3 / ms:8.0f} images/s  first step {first[engine]:6.1f} s"
              f"  peak {peak.get(engine, float('nan')):5.1f} GB  rounds {' '.join(f'{v:.2f}' for v in values)}")


if __name__ == "__main__":
    main()
