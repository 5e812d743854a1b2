"""Times hipvit and its peers on one GPU or on the CPU, side by side, in one command:

    python3 benches/peers/random_model.py models
    python3 benches/peers models/* --batch 1,8,64,256 --dtype bf16 --hipvit target/release/hipvit --output peers.jsonl

Peers: PyTorch eager, torch.compile (default and max-autotune; a C++ compiler for the CPU), and where installed ONNX Runtime,
OpenVINO, TensorRT and MIGraphX. On an AMD GPU it is PyTorch for ROCm. `hipvit compare peers.jsonl` shows the rows. Models that
`hipvit quantize --to fp8 --calibrate` wrote run in PyTorch with its own FP8 GEMM, with the same weights and scales.

Each engine runs in a process of its own. For each model, batch size and dtype all engines prepare; then they take turns for
`--repeat` repetitions, so that a slow spell of the machine hits them all. Before, each peer's logits of a random image are
compared with hipvit's: an engine that computes something else gets an error instead of times. README.md has the method.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # As a package, whose modules do not hide others of their names.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from peers.cli import main

    sys.exit(main())
