#!/bin/sh
# Makes the code objects of scale.hip: for 32 lanes, for 64 where 32 are usual, for 64. With clang 19.
set -e
cd "$(dirname "$0")"
make() {
    output=$1
    shift
    clang++-19 -x hip -std=c++17 -O3 --cuda-device-only --no-gpu-bundle-output -nogpulib -nogpuinc "$@" scale.hip -o "$output"
    llvm-objcopy-19 --strip-all "$output"
    chmod 644 "$output"
}
make gfx1100.elf --offload-arch=gfx1100
make gfx1100-wave64.elf --offload-arch=gfx1100 -mwavefrontsize64
make gfx90a.elf --offload-arch=gfx90a
