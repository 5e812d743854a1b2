"""Times hip/attention.hip beside PyTorch's attentions (FlashAttention 2, cuDNN) on an NVIDIA GPU, on the same packed Q, K and V, and
the largest product that cuBLAS reaches in the same run: microseconds, medians of interleaved rounds.

    python benches/attention_peers.py    (torch with CUDA, numpy; NVRTC, which comes with torch)
"""

import os
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "hip"))
import check_cases as cases  # noqa: E402
import check_cuda  # noqa: E402

# Images, heads, tokens, channels of a head.
CASES = [(1, 12, 197, 64), (32, 12, 197, 64), (8, 16, 257, 80), (8, 16, 577, 64), (4, 16, 1024, 64), (1, 8, 2048, 128)]
PEERS = {"FlashAttention 2": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
WAVE, ROUNDS, CALLS = 32, 9, 50


class Timed:
    """Work that is captured once and replayed, so that launching it takes no time."""

    def __init__(self, run):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                run(stream)
        torch.cuda.synchronize()
        self.graph, self.times = torch.cuda.CUDAGraph(), []
        with torch.cuda.graph(self.graph, stream=stream):
            for _ in range(CALLS):
                run(stream)

    def round(self):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        self.times.append(begin.elapsed_time(end) * 1e3 / CALLS)

    def median(self):
        return statistics.median(self.times[1:])


def ours(cuda, module, qkv, out):
    """A launch of the kernel on q, k and v as they lie in `qkv` [images, tokens, 3, heads, channels]."""
    images, tokens, _, heads, channels = qkv.shape
    width, dtype = heads * channels, cases.F16 if qkv.dtype == torch.float16 else cases.BF16
    addresses = [qkv.data_ptr() + i * width * qkv.element_size() for i in range(3)] + [out.data_ptr()]
    strides, between = [3 * width * tokens] * 3, [3 * width] * 3
    shape = images, heads, tokens, tokens, channels
    entry, grid, block, fields = cases.attention_launch(
        WAVE, dtype, shape, addresses, cases.mask_fields(), strides, between, channels**-0.5
    )
    function, _ = cuda.function(module, entry)
    arguments = cases.Case("", "attention", entry, grid, block, fields).pack(int)
    return lambda stream: cuda.launch(function, grid, block, arguments, stream.cuda_stream)


def peer(backend, qkv):
    q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))

    def run(_):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v)

    return run


def main():
    torch.cuda.init()
    cuda = check_cuda.Cuda()
    module = cuda.load(check_cuda.Nvrtc().compile("attention", cuda.arch))
    print(f"{cuda.name}, torch {torch.__version__}")
    for dtype in (torch.float16, torch.bfloat16):
        a = torch.randn(8192, 8192, device="cuda", dtype=dtype)
        product = Timed(lambda _: torch.matmul(a, a))
        for _ in range(ROUNDS):
            product.round()
        ceiling = 2 * 8192**3 / product.median() * 1e-6
        name = str(dtype).removeprefix("torch.")
        print(f"\n{name}: cuBLAS reaches {ceiling:.0f} TFLOP/s\n{'images heads tokens channels':30} {'hipvit':>8}", end="")
        print("".join(f" {peer:>17} ratio" for peer in PEERS), " TFLOP/s of cuBLAS")
        for images, heads, tokens, channels in CASES:
            qkv = torch.randn(images, tokens, 3, heads, channels, device="cuda", dtype=dtype)
            out = torch.full((images, tokens, heads, channels), float("nan"), device="cuda", dtype=dtype)
            timed = {"hipvit": Timed(ours(cuda, module, qkv, out))}
            timed |= {name: Timed(peer(backend, qkv)) for name, backend in PEERS.items()}
            for _ in range(ROUNDS):
                for work in timed.values():
                    work.round()
            q, k, v = (qkv[:, :, i].transpose(1, 2).double() for i in range(3))
            expected = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
            error = ((out - expected).norm() / expected.norm()).item()
            assert error < 4 * torch.finfo(dtype).eps, f"the result is off by {error:.1e}"
            took = timed["hipvit"].median()
            rate = 4 * images * heads * tokens**2 * channels / took * 1e-6
            print(f"{images:6} {heads:5} {tokens:6} {channels:8}   {took:8.1f}", end="")
            print("".join(f" {timed[n].median():17.1f} {timed[n].median() / took:5.2f}" for n in PEERS), end="")
            print(f" {rate:8.1f} {100 * rate / ceiling:6.1f} %", flush=True)


main()
