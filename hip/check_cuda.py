#!/usr/bin/env python3
"""Runs every kernel on an NVIDIA GPU, by NVRTC and the CUDA driver, and holds it against float64.

usage: check_cuda.py [--compile-only [sm_90]] [--small | --large] [entry]

Needs NumPy, libnvrtc and libcuda, and nothing of hipvit but this folder. An error over its tolerance, a changed guard, or
a call that fails is a FAIL, and the exit code is 1.
"""
import argparse
import ctypes
import glob
import os
import site
import sys
import time

import numpy as np

import check_cases as cases

HERE = os.path.dirname(os.path.abspath(__file__))
WAVE = 32


def open_library(patterns, what):
    roots = ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib", "/usr/local/nvidia/lib64"]
    roots += os.environ.get("LD_LIBRARY_PATH", "").split(":")
    packages = site.getsitepackages() + [site.getusersitepackages()] + sys.path
    roots += [lib for p in packages if p for lib in glob.glob(os.path.join(p, "nvidia", "*", "lib"))]
    found = [f for pattern in patterns for r in roots if r for f in sorted(glob.glob(os.path.join(r, pattern)), reverse=True)]
    tried = []
    for path in found + patterns:
        if "builtins" in path or ".alt." in path:
            continue
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            tried.append(str(error))
    sys.exit(f"no {what}: {'; '.join(tried)}")


class Nvrtc:
    def __init__(self):
        self.lib = open_library(["libnvrtc.so.13*", "libnvrtc.so.12*", "libnvrtc.so"], "NVRTC")

    def compile(self, file, arch):
        """The cubin of a kernel file."""
        lib, program = self.lib, ctypes.c_void_p()
        headers = sorted(glob.glob(os.path.join(HERE, "*.h")) + glob.glob(os.path.join(HERE, "include", "*")))
        read = lambda path: open(path, "rb").read()
        strings = lambda items: (ctypes.c_char_p * len(items))(*items)
        texts = strings([read(h) for h in headers])
        names = strings([os.path.basename(h).encode() for h in headers])
        source = read(os.path.join(HERE, f"{file}.hip"))
        self.check(lib.nvrtcCreateProgram(ctypes.byref(program), source, f"{file}.hip".encode(), len(headers), texts, names))
        options = [f"--gpu-architecture={arch}".encode(), b"-std=c++17"]
        status = lib.nvrtcCompileProgram(program, len(options), strings(options))
        size = ctypes.c_size_t()
        lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        lib.nvrtcGetProgramLog(program, log)
        if status:
            raise RuntimeError(f"{file}.hip: {log.value.decode()}")
        if log.value.strip():
            print(f"{file}.hip: {log.value.decode()}")
        self.check(lib.nvrtcGetCUBINSize(program, ctypes.byref(size)))
        cubin = ctypes.create_string_buffer(size.value)
        self.check(lib.nvrtcGetCUBIN(program, cubin))
        lib.nvrtcDestroyProgram(ctypes.byref(program))
        return cubin.raw

    @staticmethod
    def check(status):
        if status:
            raise RuntimeError(f"NVRTC status {status}")


class Cuda:
    """The driver API; every call that fails raises."""

    def __init__(self):
        self.lib = open_library(["libcuda.so.1"], "CUDA driver")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self("cuInit", ctypes.c_uint(0))
        self("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)
        name, major, minor = ctypes.create_string_buffer(128), ctypes.c_int(), ctypes.c_int()
        self("cuDeviceGetName", name, ctypes.c_int(128), device)
        self("cuDeviceGetAttribute", ctypes.byref(major), ctypes.c_int(75), device)
        self("cuDeviceGetAttribute", ctypes.byref(minor), ctypes.c_int(76), device)
        self.name, self.arch = name.value.decode(), f"sm_{major.value}{minor.value}"
        self.events = []
        for _ in range(2):
            event = ctypes.c_void_p()
            self("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
            self.events.append(event)

    def __call__(self, name, *arguments):
        status = getattr(self.lib, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self.lib.cuGetErrorName(status, ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'?').decode()}")

    def load(self, cubin):
        module = ctypes.c_void_p()
        self("cuModuleLoadData", ctypes.byref(module), cubin)
        return module

    def function(self, module, name):
        function, values = ctypes.c_void_p(), {}
        self("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        for key, attribute in (("lds", 1), ("local", 3), ("registers", 4)):
            value = ctypes.c_int()
            self("cuFuncGetAttribute", ctypes.byref(value), ctypes.c_int(attribute), function)
            values[key] = value.value
        return function, values

    def upload(self, data):
        address = ctypes.c_uint64()
        data = np.ascontiguousarray(data)
        self("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(data.nbytes, 1)))
        if data.nbytes:
            self("cuMemcpyHtoD_v2", address, data.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(data.nbytes))
        return address.value

    def download(self, address, count):
        data = np.empty(count, np.uint8)
        self("cuMemcpyDtoH_v2", data.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(address), ctypes.c_size_t(count))
        return data

    def free(self, address):
        self("cuMemFree_v2", ctypes.c_uint64(address))

    def launch(self, function, grid, block, arguments, stream=None):
        u32 = ctypes.c_uint
        buffer = ctypes.create_string_buffer(arguments, len(arguments))
        parameters = (ctypes.c_void_p * 1)(ctypes.cast(buffer, ctypes.c_void_p))
        sizes = [u32(grid), u32(1), u32(1), u32(block), u32(1), u32(1), u32(0)]
        self("cuLaunchKernel", function, *sizes, ctypes.c_void_p(stream), parameters, ctypes.c_void_p())

    def time(self, run, repeats):
        """Seconds of one of `repeats` runs."""
        run()
        self("cuEventRecord", self.events[0], ctypes.c_void_p())
        for _ in range(repeats):
            run()
        self("cuEventRecord", self.events[1], ctypes.c_void_p())
        self("cuEventSynchronize", self.events[1])
        elapsed = ctypes.c_float()
        self("cuEventElapsedTime", ctypes.byref(elapsed), *self.events)
        return elapsed.value * 1e-3 / repeats


def execute(cuda, function, case, repeats):
    """Runs a case; (passed, text)."""
    addresses = {}

    def address_of(value):
        if isinstance(value, cases.Offset):
            return address_of(value.array) + value.bytes
        if id(value) not in addresses:
            if isinstance(value, cases.Output):
                data = np.full(value.nbytes() + 2 * cases.GUARD, cases.FILL, np.uint8)
                if value.initial is not None:
                    data[cases.GUARD : -cases.GUARD] = value.initial.view(np.uint8).ravel()
                addresses[id(value)] = cuda.upload(data), cases.GUARD
            else:
                addresses[id(value)] = cuda.upload(value), 0
        return sum(addresses[id(value)])

    try:
        arguments = case.pack(address_of)
        run = lambda: cuda.launch(function, case.grid, case.block, arguments)
        run()
        cuda("cuCtxSynchronize")
        passed, text = True, ""
        for output in case.outputs:
            raw = cuda.download(addresses[id(output)][0], output.nbytes() + 2 * cases.GUARD)
            ratio, error, tolerance = output.check(raw[cases.GUARD : -cases.GUARD].copy())
            whole = (raw[: cases.GUARD] == cases.FILL).all() and (raw[-cases.GUARD :] == cases.FILL).all()
            passed &= ratio <= 1 and bool(whole)
            text += f" error {error:.2e} tolerance {tolerance:.2e}{'' if whole else ' GUARD CHANGED'}"
        if repeats:
            seconds = cuda.time(run, repeats)
            text += f"  {seconds * 1e6:9.1f} µs {case.bytes / seconds * 1e-9:7.0f} GB/s"
            if case.flops:
                text += f" {case.flops / seconds * 1e-12:6.1f} TFLOP/s"
        return passed, text
    finally:
        for address, _ in addresses.values():
            cuda.free(address)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--compile-only", nargs="?", const="sm_90", metavar="ARCH")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("entry", nargs="?", default="")
    options = parser.parse_args()
    files = sorted(os.path.basename(f)[:-4] for f in glob.glob(os.path.join(HERE, "*.hip")))
    nvrtc = Nvrtc()
    cuda = None if options.compile_only else Cuda()
    arch = options.compile_only or cuda.arch
    if cuda:
        print(f"{cuda.name}, {arch}")
    modules, failed, count = {}, 0, 0
    for file in files:
        start = time.time()
        try:
            cubin = nvrtc.compile(file, arch)
            modules[file] = cuda and cuda.load(cubin)
            print(f"PASS compile {file} for {arch} {time.time() - start:.1f} s, {len(cubin)} bytes")
        except RuntimeError as error:
            failed += 1
            print(f"FAIL compile {error}")
    if cuda:
        functions = {}
        for large in (False, True):
            if (options.small and large) or (options.large and not large):
                continue
            for case in (cases.large if large else cases.small)(WAVE):
                if options.entry not in case.entry:
                    continue
                count += 1
                try:
                    if case.entry not in functions:
                        functions[case.entry] = cuda.function(modules[case.file], case.entry)
                        usage = functions[case.entry][1]
                        print(f"     {case.entry}: {usage['registers']} registers, {usage['lds']} bytes LDS, {usage['local']} bytes spilled")
                    passed, text = execute(cuda, functions[case.entry][0], case, 20 if large else 0)
                except (RuntimeError, KeyError) as error:
                    passed, text = False, f" {error!r}"
                failed += not passed
                print(f"{'PASS' if passed else 'FAIL'} {case.entry.rsplit('_', 1)[1]:4} {case.name}{text}", flush=True)
    print(f"{'FAIL' if failed else 'PASS'}: {count} cases, {failed} failures")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
