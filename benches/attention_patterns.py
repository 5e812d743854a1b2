"""Times attention with patterns beside FlexAttention on an NVIDIA GPU: microseconds, medians of rounds in which both take turns.

    cargo build --release --bin hipvit && cargo build --release -p hip-on-cuda
    HIPVIT_PROVIDER=target/release/libhip_on_cuda.so python benches/attention_patterns.py 64x12x197x64    (torch with CUDA)

hipvit runs as `hipvit validate`, which times launches that follow each other by the GPU's events, the search for hidden tiles
included, and checks the results against the f64 reference. FlexAttention's block masks are made beforehand, and its calls are replayed
from a captured graph. `its first use` is the time until its first result of a pattern, compilation included. With --backward both
compute the gradients of queries, keys, values and captured floats too.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import time

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from replayed import Timed


def patterns(images, heads, n):
    """The forms of hipvit's cases, by name: (score_mod, mask_mod, what is learned)."""
    prefix = 0 if math.isqrt(n) ** 2 == n else 1
    side = math.isqrt(n - prefix)
    documents = torch.randint(0, n, (images, 3), device="cuda").unsqueeze(2) <= torch.arange(n, device="cuda")
    documents = documents.sum(1)
    present = torch.arange(n, device="cuda") >= torch.randint(0, n, (images, 1), device="cuda")
    bias = torch.randn(heads, n, n, device="cuda", dtype=torch.bfloat16)
    table = torch.randn((2 * side - 1) ** 2 + 3, heads, device="cuda", dtype=torch.bfloat16)

    def any_token(near):
        def mask(b, h, q, k):
            return near(q - prefix, k - prefix) | (q < prefix) | (k < prefix)

        return mask

    def near(q, k):
        return ((q // side - k // side).abs() <= 3) & ((q % side - k % side).abs() <= 3)

    def same_window(q, k):
        def of(t):
            return (t // side + 4) // 7, (t % side + 4) // 7

        return (of(q)[0] == of(k)[0]) & (of(q)[1] == of(k)[1])

    def relative(s, b, h, q, k):
        i, j = q - prefix, k - prefix
        index = (i // side - j // side + side - 1) * (2 * side - 1) + i % side - j % side + side - 1
        if prefix:
            pairs = (2 * side - 1) ** 2
            index = torch.where(q == 0, torch.where(k == 0, pairs + 2, pairs), torch.where(k == 0, pairs + 1, index))
        return s + table[index, h]

    learned = {"bias": bias, "shifted_window": table}
    masks_and_scores = {
        "causal": (None, lambda b, h, q, k: k <= q),
        "window": (None, lambda b, h, q, k: (q - k).abs() <= n // 8),
        "prefix": (None, lambda b, h, q, k: (k < n // 4) | (k <= q)),
        "documents": (None, lambda b, h, q, k: documents[b, q] == documents[b, k]),
        "padding": (None, lambda b, h, q, k: present[b, k]),
        "window_2d": (None, any_token(near)),
        "dilated": (None, lambda b, h, q, k: (k - q) % 3 == 0),
        "alibi": (lambda s, b, h, q, k: s - torch.exp2(-8.0 * (h + 1) / heads) * (q - k).abs(), None),
        "soft_cap": (lambda s, b, h, q, k: 2.0 * torch.tanh(s / 2.0), None),
        "bias": (lambda s, b, h, q, k: s + bias[h, q, k], None),
        "shifted_window": (relative, any_token(same_window)),
    }
    return {name: (*functions, learned.get(name)) for name, functions in masks_and_scores.items()}


def ours(binary, config, dtype, backward):
    """Microseconds by form: of the forward pass, with plain attention's, or of both passes."""
    command = [binary, "validate", "--device", "hip", "--dtype", dtype, "--config", config, "--json"]
    times = {}
    for op in ("pattern_attention", "pattern_attention_backward" if backward else "attention"):
        done = subprocess.run([*command, "--op", op], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"hipvit validate failed: {done.stderr.strip()}{done.stdout[-2000:]}")
        of_op = {}
        for row in json.loads(done.stdout)["rows"]:
            words = row["form"].split()
            sums = words[-1] == "+log-sum-exp"
            if op == "attention" and words[2:] == ["packed-qkv"]:
                of_op["plain"] = row["seconds"] * 1e6
            elif "pattern" in op and sums == backward:
                of_op[words[-1 - sums]] = row["seconds"] * 1e6
        for name, time_of_op in of_op.items():
            times[name] = times.get(name, 0) + time_of_op
    return times


def peer(score, mask, learned, shape, backward):
    torch._dynamo.reset()
    images, heads, tokens, channels = shape
    qkv = torch.randn(images, tokens, 3, heads, channels, device="cuda", dtype=torch.bfloat16)
    q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
    wanted = [q, k, v] + ([] if learned is None else [learned])
    for tensor in wanted:
        tensor.requires_grad_(backward)
    dy = torch.randn_like(q)
    begin = time.perf_counter()
    blocks = None
    if mask:
        depends = "documents" in mask.__code__.co_freevars or "present" in mask.__code__.co_freevars
        blocks = create_block_mask(mask, images if depends else None, None, tokens, tokens)
    attention = torch.compile(flex_attention, dynamic=False)

    def run():
        out = attention(q, k, v, score_mod=score, block_mask=blocks)
        return torch.autograd.grad(out, wanted, dy) if backward else out

    run()
    torch.cuda.synchronize()
    return Timed(run), time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("shape", help="images x heads x tokens x channels of a head: 64x12x197x64")
    parser.add_argument("--hipvit", default="target/release/hipvit", help="the program")
    parser.add_argument("--backward", action="store_true", help="forward and backward")
    parser.add_argument("--only", type=lambda names: names.split(","), help="patterns, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    shape = tuple(map(int, options.shape.split("x")))
    torch.cuda.init()
    torch.manual_seed(1)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bf16, {options.shape}")
    peers = {} if options.backward else {"plain": peer(None, None, None, shape, False)}
    for name, functions in patterns(*shape[:3]).items():
        if not options.only or name in options.only:
            peers[name] = peer(*functions, shape, options.backward)
    peers, compiled = {name: timed for name, (timed, _) in peers.items()}, {name: took for name, (_, took) in peers.items()}
    rounds = []
    for _ in range(options.rounds):
        rounds.append(ours(options.hipvit, options.shape, "bf16", options.backward))
        for work in peers.values():
            work.round()
    plain = math.nan if options.backward else statistics.median(times["plain"] for times in rounds)
    print(f"{'pattern':16} {'hipvit':>8} {'of plain':>8} {'FlexAttention':>14} {'ratio':>6} {'its first use s':>16}")
    for name, work in peers.items():
        took = statistics.median(times[name] for times in rounds)
        print(f"{name:16} {took:8.1f} {took / plain:8.2f} {work.median():14.1f} {work.median() / took:6.2f} {compiled[name]:16.1f}", flush=True)


main()
