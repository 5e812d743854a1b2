"""The command line in the package, devices, progress, and the Hugging Face hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import hipvit
from conftest import GOLDEN, SAMPLES
from hub import COMMIT, serving

MODEL = "someone/vit-tiny"


def run(*arguments: object, **environment: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hipvit", *map(str, arguments)]
    variables = {**os.environ, **{name: str(value) for name, value in environment.items()}}
    # Run elsewhere, because `python -m` searches the working directory first.
    return subprocess.run(command, capture_output=True, text=True, env=variables, cwd=SAMPLES, timeout=120)


def test_the_package_is_the_command_line() -> None:
    version = run("--version")
    assert (version.returncode, version.stdout) == (0, f"hipvit {hipvit.__version__}\n")
    classified = run("classify", SAMPLES / "7.png", "--device", "cpu", "--json")
    assert classified.returncode == 0, classified.stderr
    assert json.loads(classified.stdout)["top"][0]["label"] == "seven"
    assert run("classify", "absent.png", "--device", "cpu").returncode == 1
    wrong = run("classify", "--absent")
    assert wrong.returncode == 2
    assert "hipvit classify" in wrong.stderr
    # The program that pip installs.
    script = Path(sys.executable).with_name("hipvit")
    assert subprocess.run([script, "--version"], capture_output=True, text=True).stdout == version.stdout


def test_devices_are_what_load_takes() -> None:
    devices = hipvit.devices()
    assert devices[0].device == "cpu"
    assert devices[0].name
    for device in devices:
        hipvit.load(device=device.device).close()


def test_progress_is_reported_after_each_image() -> None:
    images = [image for _, image in hipvit.samples()]
    with hipvit.load(device="cpu") as model:
        calls: list[tuple[int, int]] = []
        model.run(images, progress=lambda done, total: calls.append((done, total)))
        assert calls == [(done, 10) for done in range(1, 11)]
        calls.clear()
        model.run(images[0], progress=lambda done, total: calls.append((done, total)))
        assert calls == [(1, 1)]


def test_an_exception_in_progress_ends_the_run() -> None:
    images = [image for _, image in hipvit.samples()]
    calls = []

    def stop(done: int, total: int) -> None:
        calls.append(done)
        if done == 3:
            raise KeyError(total)

    with hipvit.load(device="cpu") as model:
        with pytest.raises(KeyError):
            model.run(images, progress=stop)
        assert calls == [1, 2, 3]
        assert model(images).shape == (10, 10)


def layout(home: Path) -> dict[str, str]:
    """The files of the cache, links as their targets. The list of files that the hub's library keeps is its own."""
    files = {}
    for path in sorted(home.glob("hub/models--*/**/*")):
        if "trees" in path.parts:
            continue
        if path.is_symlink():
            files[str(path.relative_to(home))] = os.readlink(path)
        elif path.is_file():
            files[str(path.relative_to(home))] = path.read_bytes().hex()
    return files


def test_a_pulled_model_is_where_the_hubs_library_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with serving(GOLDEN / "hf_vit", MODEL) as endpoint:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        monkeypatch.setenv("HF_HOME", str(ours))
        calls: list[tuple[int, int]] = []
        directory = hipvit.pull(MODEL, progress=lambda done, total: calls.append((done, total)))
        assert directory == ours / "hub/models--someone--vit-tiny/snapshots" / COMMIT
        assert calls[-1][0] == calls[-1][1] > 0
        names = sorted(path.name for path in directory.iterdir())
        assert names == ["config.json", "model.safetensors", "preprocessor_config.json"]
        # Run the hub's library in a separate process, because it reads the variables on import.
        code = f"from huggingface_hub import snapshot_download; print(snapshot_download({MODEL!r}, allow_patterns={names!r}))"
        environment = {**os.environ, "HF_HOME": str(theirs), "HF_HUB_DISABLE_XET": "1"}
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)
    assert layout(theirs) == layout(ours)
    # Without the hub, each finds what the other downloaded.
    code = code.replace("allow_patterns", "local_files_only=True, allow_patterns")
    environment = {**os.environ, "HF_HOME": str(ours), "HF_HUB_OFFLINE": "1"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True, timeout=120)
    assert found.stdout.strip() == str(directory)
    monkeypatch.setenv("HF_HOME", str(theirs))
    assert hipvit.load(MODEL, "cpu").name == MODEL


def test_what_cannot_be_pulled_is_a_hub_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(hipvit.HubError, match="HF_HUB_OFFLINE is set"):
        hipvit.pull(MODEL)
    assert "HF_HUB_OFFLINE is set" in run("pull", MODEL, HF_HUB_OFFLINE=1).stderr
