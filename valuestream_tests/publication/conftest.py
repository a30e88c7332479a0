"""Older DuckDB releases as readers, each in a folder of its own, installed on first use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# What readers have: an older minor of each line that DESIGN promises, and the one of this project.
READERS = ("1.3.2", "1.4.4")

_ASK = """
import json, sys
import duckdb
assert duckdb.__version__ == sys.argv[1], duckdb.__version__
connection = duckdb.connect()
connection.execute(f"ATTACH '{sys.argv[2]}' AS anything (READ_ONLY)")
connection.execute("USE anything")
json.dump([connection.execute(sql).fetchall() for sql in json.loads(sys.argv[3])], sys.stdout, default=str)
"""

Ask = Callable[[Path, list[str]], list[list[list[Any]]]]


def _folder(version: str) -> Path:
    folder = Path(sys.prefix) / "readers" / f"duckdb-{version}"
    if not folder.exists():
        aside = folder.with_name(f"{folder.name}.{os.getpid()}")
        installed = subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(aside), f"duckdb=={version}"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if installed.returncode:
            pytest.skip(f"DuckDB {version} cannot be installed here: {installed.stderr.strip()[-200:]}")
        aside.rename(folder)
    return folder


@pytest.fixture(scope="session", params=READERS)
def older_reader(request: pytest.FixtureRequest) -> Ask:
    """Ask a catalogue questions with an older DuckDB, in a process of its own."""
    version = str(request.param)
    environment = {**os.environ, "PYTHONPATH": str(_folder(version))}

    def ask(path: Path, questions: list[str]) -> list[list[list[Any]]]:
        ran = subprocess.run(
            [sys.executable, "-c", _ASK, version, str(path), json.dumps(questions)],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        answers: list[list[list[Any]]] = json.loads(ran.stdout)
        return answers

    return ask
