"""The example, the notebook and the README's code run."""

from __future__ import annotations

import doctest
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import GOLDEN, SAMPLES

import hipvit

HERE = Path(__file__).resolve().parents[1]


def test_the_packages_documentation() -> None:
    assert doctest.testmod(hipvit).failed == 0
    assert doctest.testmod(hipvit.patterns).failed == 0


def test_classify() -> None:
    command = [sys.executable, str(HERE / "examples" / "classify.py"), str(SAMPLES / "7.png"), str(SAMPLES / "3.png")]
    result = subprocess.run([*command, "--top", "2"], capture_output=True, text=True, check=True)
    lines = result.stdout.splitlines()
    assert len(lines) == 6
    assert "seven" in lines[1] and "three" in lines[4]
    failed = subprocess.run([*command, "absent.png"], capture_output=True, text=True, check=False)
    assert failed.returncode == 1 and "absent.png" in failed.stderr


def test_the_relative_bias_is_learned() -> None:
    pytest.importorskip("torch")
    command = [sys.executable, str(HERE / "examples" / "relative_bias.py"), "--steps", "30"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    errors = [float(line.split("error ")[1].split(",")[0]) for line in result.stdout.splitlines()]
    assert len(errors) == 4 and errors[-1] < 0.2 * errors[0], errors


@pytest.mark.parametrize("number", [0, 1])
def test_the_page_about_attention(number: int) -> None:
    text = (HERE.parent / "docs" / "attention.md").read_text()
    blocks = [textwrap.dedent(block.split("```")[0]) for block in text.split("```python\n")[1:]]
    assert len(blocks) == 2
    if "import torch" in blocks[number]:
        pytest.importorskip("torch")
    exec(compile(blocks[number], "docs/attention.md", "exec"), {})


def _cells() -> list[str]:
    notebook = json.loads((HERE / "examples" / "digits.ipynb").read_text())
    assert notebook["nbformat"] == 4
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    # Outputs are not committed.
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)
    return ["".join(cell["source"]) for cell in cells]


def test_the_notebook(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE / "examples")
    variables: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(_cells()):
        exec(compile(cell, f"cell {number}", "exec"), variables)
    assert "seven" in capsys.readouterr().out


def test_the_readme(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (HERE / "README.md").read_text()
    code = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    runnable = [block for block in code if "path/to" not in block and "import hipvit" in block]
    assert runnable
    monkeypatch.chdir(GOLDEN / "images")
    for block in runnable:
        exec(compile(block, "README.md", "exec"), {})
    for block in code:
        compile(block, "README.md", "exec")
