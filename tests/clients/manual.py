"""Runs the examples of docs/serving.md and docs/security.md against `hipvit serve`. Usage: manual.py HIPVIT

A block ```console holds commands after `$ ` (a line that ends in \\ goes on, as does one that begins with four spaces), and what they
print; … stands for any text. The command that ends in & starts the server, on a free port in place of 8000. A block ```python is run by this
Python. The models and the image of the page are golden ones."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
hipvit = Path(sys.argv[1]).resolve()


def blocks():
    text = "".join((ROOT / "docs" / page).read_text() for page in ["serving.md", "security.md"])
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(block):
    """Pairs of a command and what it prints."""
    found = []
    goes_on = False
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append([line[2:], ""])
        elif goes_on or line.startswith("    "):
            found[-1][0] += "\n" + line
        else:
            found[-1][1] += line + "\n"
        goes_on = line.endswith("\\")
    return found


def fits(shown, printed):
    pattern = ".*".join(re.escape(part) for part in shown.strip().split("…"))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait(address):
    for _ in range(600):
        try:
            return urllib.request.urlopen(f"http://{address}/v2/health/ready", timeout=10).read()
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server does not answer")


def main():
    address = f"127.0.0.1:{free_port()}"
    server, ran = None, 0
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "models").mkdir()
        (work / "bin").mkdir()
        (work / "bin/hipvit").symlink_to(hipvit)
        (work / "models/vit").symlink_to(ROOT / "tests/golden/timm_vit_class_token")
        (work / "models/clip").symlink_to(ROOT / "tests/golden/zero_shot/hf_clip")
        (work / "models/trocr").symlink_to(ROOT / "tests/golden/generation/trocr_base")
        (work / "models/detr").symlink_to(ROOT / "tests/golden/rt_detr/rt_detr")
        (work / "models/sam").symlink_to(ROOT / "tests/golden/segment/sam")
        (work / "models/depth").symlink_to(ROOT / "tests/golden/depth/dpt")
        (work / "models/smolvlm").symlink_to(ROOT / "tests/golden/smolvlm/smolvlm")
        shutil.copy(ROOT / "tests/golden/images/photo.jpg", work / "cat.jpg")
        # An HTTP error fails the command.
        (work / ".curlrc").write_text("silent\nshow-error\nfail-with-body\n")
        environment = os.environ | {"PATH": f"{work / 'bin'}:{os.environ['PATH']}", "CURL_HOME": str(work)}
        try:
            for kind, block in blocks():
                block = block.replace("127.0.0.1:8000", address)
                if kind == "python":
                    subprocess.run([sys.executable, "-c", block], cwd=work, env=environment, check=True)
                    ran += 1
                for command, shown in commands(block) if kind == "console" else []:
                    ran += 1
                    if command.endswith("&"):
                        command = f"exec {command.removesuffix('&')} --listen {address}"
                        log = (work / "log").open("wb")
                        server = subprocess.Popen(["bash", "-c", command], cwd=work, env=environment, stderr=log)
                        wait(address)
                        continue
                    done = subprocess.run(["bash", "-c", command], cwd=work, env=environment, capture_output=True, text=True)
                    if done.returncode or not fits(shown, done.stdout):
                        raise SystemExit(f"$ {command}\nprints\n{done.stdout}{done.stderr}\nnot\n{shown}")
        finally:
            if server:
                server.terminate()
                if server.wait(60):
                    print((work / "log").read_text(), file=sys.stderr)
                    raise SystemExit(f"the server ended with {server.returncode}")
    print(f"docs/serving.md, docs/security.md: {ran} examples work")


main()
