"""Attacks `hipvit serve` like hostile clients, and measures the effect on other clients:

    python3 benches/attack target/release/hipvit --json after.jsonl
    python3 benches/attack --compare before.jsonl after.jsonl

Each kind of attack gets a server of its own on the CPU with the embedded model, 256 MiB for bodies and for decoding, and an
address space of `--memory` GiB. The attacker has the address 127.0.0.2. From 127.0.0.1 a neighbour sends an ordinary request
20 times a second, and a probe asks for /v2/health/live as often; each opens a connection of its own. `--help` lists the kinds.
Needs Linux and Python's standard library alone.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # As a package, whose modules do not hide others of their names.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from attack.cli import main

    sys.exit(main())
