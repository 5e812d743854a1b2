#!/usr/bin/env python3
"""Compiles every kernel for an AMD target, executes the machine code on the CPU, and holds it against float64.

usage: check_emu.py [--arch gfx942] [--reversed] [entry]

Needs NumPy, clang 19 or later, LLVM's objdump, and cargo. An error over its tolerance, a changed guard, or a fault
that the emulator finds is a FAIL, and the exit code is 1.
"""
import argparse
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import time

import check_cases as cases
import numpy as np
from check_cuda import execute

HERE = os.path.dirname(os.path.abspath(__file__))


class Emulator:
    """What check_cuda.execute asks of a GPU, by the example `serve` of crate gcnrun."""

    def __init__(self, reversed_order):
        command = ["cargo", "run", "--quiet", "--release", "--package", "gcnrun", "--example", "serve"]
        command = [os.environ["GCNRUN_SERVE"]] if "GCNRUN_SERVE" in os.environ else command
        environment = dict(os.environ, **({"GCNRUN_ORDER": "reversed"} if reversed_order else {}))
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=HERE, env=environment, stdin=pipe, stdout=pipe)
        self.instructions, self.microseconds = 0, 0

    def ask(self, line, data=b""):
        self.process.stdin.write(line.encode() + b"\n" + data)
        self.process.stdin.flush()
        answer = self.process.stdout.readline().decode()
        if not answer.startswith("ok"):
            raise RuntimeError(answer.strip() or "the emulator ended")
        return answer.split()[1:]

    def __call__(self, name):
        """Nothing to wait for."""

    def upload(self, data):
        data = np.ascontiguousarray(data)
        return int(self.ask(f"upload {data.nbytes}", data.tobytes())[0])

    def download(self, address, count):
        self.ask(f"download {address} {count}")
        return np.frombuffer(self.process.stdout.read(count), np.uint8)

    def free(self, address):
        self.ask(f"free {address}")

    def launch(self, function, grid, block, arguments):
        instructions, microseconds = self.ask(f"launch {function} {grid} {block} {arguments.hex()}")
        self.instructions += int(instructions)
        self.microseconds += int(microseconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--arch", default="gfx942")
    parser.add_argument("--reversed", action="store_true", help="run blocks and waves the other way round")
    parser.add_argument("entry", nargs="?", default="")
    options = parser.parse_args()
    names = ["amdclang++", *(f"clang++-{version}" for version in range(22, 18, -1)), "clang++"]
    compiler = next((name for name in names if shutil.which(name)), None) or sys.exit(f"none of {', '.join(names)}")
    emulator, loaded, failed, count = Emulator(options.reversed), set(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for case in cases.small(64 if options.arch.startswith("gfx9") else 32):
            if options.entry not in case.entry:
                continue
            count += 1
            start = time.time()
            try:
                if case.file not in loaded:
                    loaded.add(case.file)
                    source, target = os.path.join(HERE, f"{case.file}.hip"), os.path.join(folder, f"{case.file}.co")
                    ready = os.path.join(os.environ.get("HIP_OBJECTS", ""), f"{case.file}-{options.arch}.co")
                    if os.path.exists(ready):
                        target = ready
                    else:
                        flags = "-x hip -std=c++17 -O3 --cuda-device-only --no-gpu-bundle-output -nogpulib -nogpuinc".split()
                        flags += [f"--offload-arch={options.arch}", f"-I{HERE}/include"]
                        subprocess.run([compiler, *flags, source, "-o", target], check=True)
                    emulator.ask(f"load {target}")
                passed, text = execute(emulator, case.entry, case, 0)
            except (RuntimeError, subprocess.CalledProcessError) as error:
                passed, text = False, f" {error}"
            failed += not passed
            print(f"{'PASS' if passed else 'FAIL'} {case.entry} {case.name}{text}  {time.time() - start:.2f} s", flush=True)
    rate = emulator.instructions / max(emulator.microseconds, 1)
    print(f"{'FAIL' if failed else 'PASS'}: {options.arch}, {count} cases, {failed} failures")
    print(f"{emulator.instructions * 1e-6:.1f} million instructions of waves, {rate:.1f} million a second")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
