"""Search by `hipvit search`, and by DuckDB over the Parquet file of `hipvit embed`: docs/search.md."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import duckdb

from conftest import SAMPLES

PAGE = Path(__file__).parents[2] / "docs" / "search.md"


def run(*arguments: object, directory: Path) -> str:
    command = [sys.executable, "-m", "hipvit", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=directory, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_duckdb_finds_the_rows_that_search_finds(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.symlink_to(SAMPLES)
    for file in ["photos.npy", "photos.parquet"]:
        run("embed", "photos", "--device", "cpu", "-o", file, directory=tmp_path)
    found = run("search", "photos.npy", "--image", "photos/7.png", "--device", "cpu", "-k", 5, "--json", directory=tmp_path)
    expected = json.loads(found)["results"]

    # The query of the page, with its file names.
    (query,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    query = query.replace("'photos.parquet'", f"'{tmp_path / 'photos.parquet'}'")
    rows = duckdb.connect().execute(query).fetchall()
    assert [row[0] for row in rows] == [result["name"] for result in expected]
    for (_, similarity), result in zip(rows, expected):
        assert abs(similarity - result["score"]) < 1e-5
