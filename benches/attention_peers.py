"""Times hip/attention.hip beside PyTorch's attentions (FlashAttention 2, cuDNN) on an NVIDIA GPU, on packed Q, K and V, and the
largest GEMM that cuBLAS reaches in the same run: microseconds, medians of rounds in which hipvit and its peers take turns.

    cargo build --release --bin hipvit && cargo build --release -p hip-on-cuda
    HIPVIT_PROVIDER=target/release/libhip_on_cuda.so python benches/attention_peers.py    (torch with CUDA)

hipvit runs as `hipvit validate`, which times launches that follow each other by the GPU's events, and checks the results
against the f64 reference.
"""

import argparse
import json
import statistics
import subprocess
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from replayed import Timed

# Images, heads, tokens, channels of a head.
CASES = [
    (1, 12, 197, 64),
    (32, 12, 197, 64),
    (256, 12, 197, 64),
    (8, 16, 257, 80),
    (8, 16, 577, 64),
    (4, 16, 1024, 64),
    (16, 16, 4096, 64),
    (1, 8, 2048, 128),
]
PEERS = {"FlashAttention 2": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}


def ours(binary, dtype):
    """Microseconds of each of CASES."""
    configs = ["x".join(map(str, case)) for case in CASES]
    command = [binary, "validate", "--device", "hip", "--op", "attention", "--dtype", dtype, "--json"]
    done = subprocess.run([*command, "--config", ",".join(configs)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"hipvit validate failed: {done.stderr.strip()}{done.stdout[-2000:]}")
    rows = json.loads(done.stdout)["rows"]
    packed = {row["config"]: row["seconds"] * 1e6 for row in rows if row["form"].endswith("packed-qkv")}
    return [packed[config] for config in configs]


def peer(backend, shape, dtype):
    images, heads, tokens, channels = shape
    qkv = torch.randn(images, tokens, 3, heads, channels, device="cuda", dtype=dtype)
    q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))

    def run():
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v)

    return Timed(run)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hipvit", default="target/release/hipvit", help="the program")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.cuda.init()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for name, dtype in DTYPES.items():
        a = torch.randn(8192, 8192, device="cuda", dtype=dtype)
        gemm = Timed(lambda: torch.matmul(a, a))
        peers = [{peer_name: peer(backend, case, dtype) for peer_name, backend in PEERS.items()} for case in CASES]
        rounds = []
        for _ in range(options.rounds):
            rounds.append(ours(options.hipvit, name))
            gemm.round()
            for of_case in peers:
                for work in of_case.values():
                    work.round()
        peak = 2 * 8192**3 / gemm.median() * 1e-6
        print(f"\n{name}: cuBLAS reaches {peak:.0f} TFLOP/s\n{'images heads tokens channels':30} {'hipvit':>8}", end="")
        print("".join(f" {peer:>17} ratio" for peer in PEERS), " TFLOP/s of cuBLAS")
        for index, (images, heads, tokens, channels) in enumerate(CASES):
            took = statistics.median(times[index] for times in rounds)
            rate = 4 * images * heads * tokens**2 * channels / took * 1e-6
            print(f"{images:6} {heads:5} {tokens:6} {channels:8}   {took:8.1f}", end="")
            medians = [peers[index][peer].median() for peer in PEERS]
            print("".join(f" {median:17.1f} {median / took:5.2f}" for median in medians), end="")
            print(f" {rate:8.1f} {100 * rate / peak:6.1f} %", flush=True)


main()
