"""Threads and processes."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hipvit


def _in_fork(model: hipvit.Model, path: str) -> list[str]:
    """What fails in a forked child, by the class of its error."""
    found = []
    attempts: list[Any] = [lambda: model(path), lambda: model.labels, lambda: hipvit.load(device="cpu")]
    for attempt in attempts:
        try:
            attempt()
            found.append("nothing")
        except hipvit.ForkError as error:
            found.append(f"ForkError: {error}")
    return found


def test_a_forked_child_gets_an_error(digits: hipvit.Model, seven: Path) -> None:
    digits(seven)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, "\n".join(_in_fork(digits, str(seven))).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answers:
        lines = answers.read().splitlines()
    os.waitpid(child, 0)
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("ForkError") and str(os.getpid()) in line and "spawn" in line, line
    assert digits(seven).argmax() == 7


def test_a_child_that_loads_first_works(seven: Path, tmp_path: Path) -> None:
    # Use a fresh process that has not used hipvit, so that its fork may.
    code = (
        "import os, sys, hipvit\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(int(hipvit.load(device='cpu')(sys.argv[1]).argmax()))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    # Run elsewhere, because Python searches the working folder first.
    command = [sys.executable, "-c", code, str(seven)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "7"


def _classify(model: hipvit.Model, path: str) -> int:
    return int(model(path).argmax())


def test_spawned_processes_get_the_model(digits: hipvit.Model, seven: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        assert pool.submit(_classify, digits, str(seven)).result() == 7


def test_threads_share_a_model(digits: hipvit.Model, seven: Path) -> None:
    expected = digits(seven)
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: digits([str(seven)]), range(64)):
            assert np.array_equal(got, expected)


def test_other_threads_run_during_a_call(digits: hipvit.Model) -> None:
    images = np.zeros((8192, 32, 32, 3), np.uint8)
    ended = threading.Event()

    def call() -> None:
        digits(images, resize=False)
        ended.set()

    interval = sys.getswitchinterval()
    # No thread is interrupted, so this one continues during the call only if the call releases the GIL.
    sys.setswitchinterval(1000)
    try:
        thread = threading.Thread(target=call)
        thread.start()
        ran_meanwhile = not ended.is_set()
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert ran_meanwhile and ended.is_set()


def test_a_model_can_be_closed_while_it_runs(seven: Path) -> None:
    model = hipvit.load(device="cpu")
    images = np.zeros((1024, 32, 32, 3), np.uint8)
    results: list[Any] = []

    def call() -> None:
        try:
            results.append(model(images, resize=False).shape)
        except hipvit.ClosedError:
            results.append("closed")

    thread = threading.Thread(target=call)
    thread.start()
    try:
        model.close()
    finally:
        thread.join()
    # The call has either begun, and ends, or was cancelled before.
    assert results in ([(1024, 10)], ["closed"])
