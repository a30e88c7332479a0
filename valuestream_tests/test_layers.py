"""The rooms of the house (DESIGN, "Rooms"): who may import whom, what only the edge may touch, and a pure core."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import valuestream_dagster

PACKAGE = Path(valuestream_dagster.__file__).parent
PROJECT = PACKAGE.parent

# Modules that the core and the errors may not name: clocks, files, processes, networks, chance.
IMPURE = frozenset({
    "asyncio", "concurrent", "fcntl", "glob", "http", "io", "logging", "mmap", "multiprocessing", "os", "pathlib", "random",
    "secrets", "select", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "time",
    "urllib", "uuid", "warnings",
})  # fmt: skip
# Calls by which a clock or a file would come in through a module that is allowed.
IMPURE_CALLS = frozenset({"now", "utcnow", "today", "open", "print", "input"})


def _modules(*rooms: str) -> Iterator[tuple[Path, ast.Module]]:
    for room in rooms:
        files = [PACKAGE / room] if room.endswith(".py") else sorted((PACKAGE / room).rglob("*.py"))
        assert files, room
        for file in files:
            yield file.relative_to(PACKAGE), ast.parse(file.read_text("utf-8"))


def _imported(nodes: Iterator[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def _when_loaded(nodes: list[ast.stmt]) -> Iterator[ast.AST]:
    """The statements that run when a module is imported: not the bodies of functions, not those for type checkers."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        for name in ("body", "orelse", "finalbody"):
            yield from _when_loaded(getattr(node, name, []))


def test_every_import_contract_is_kept() -> None:
    """DESIGN: arrows point down only; Dagster, DuckDB and S3 are known where they belong."""
    ran = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 broken" in ran.stdout


def test_every_room_has_a_place_in_the_contracts() -> None:
    """A new room is placed by a person, not by accident."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))
    layers = next(one for one in project["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    placed = {room.strip(" ()") for layer in layers["layers"] for room in layer.split("|")}
    rooms = {path.stem for path in PACKAGE.glob("*.py")} | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms - {"__init__"} == placed


@pytest.mark.parametrize("room", ["core", "errors.py"])
def test_the_core_names_no_clock_no_file_and_no_chance(room: str) -> None:
    """STYLE 1: decide in the core, act at the edge"""
    for file, module in _modules(room):
        named = {name.partition(".")[0] for name in _imported(ast.walk(module))}
        assert named & IMPURE == set(), file
        called = {
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            for node in ast.walk(module)
            if isinstance(node, ast.Call)
        }
        assert called & IMPURE_CALLS == set(), file


def test_the_command_line_loads_dagster_only_where_it_needs_it() -> None:
    """It starts in a tenth of a second: neither Dagster nor a room that knows it is loaded with the modules of ``cli``."""
    heavy = (
        "dagster",
        "dagster_duckdb",
        "pandas",
        "polars",
        "boto3",
        "valuestream_dagster.orchestration",
        "valuestream_dagster.definitions",
    )
    for file, module in _modules("cli", "deployment.py", "__init__.py"):
        for name in _imported(_when_loaded(module.body)):
            assert not any(name == one or name.startswith(f"{one}.") for one in heavy), f"{file} loads {name}"


def test_loading_the_command_line_does_not_load_dagster() -> None:
    """The same, asked of the interpreter: nothing on the way loads it either."""
    code = "import sys, valuestream_dagster.cli.main; sys.exit(int('dagster' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_nobody_reads_the_clock_but_whoever_hands_it_out() -> None:
    """STYLE 7: the clock is an argument; ``deployment.clock_from`` makes it"""
    reading = [
        str(file)
        for file, module in _modules(
            "core", "feeds", "manifests", "stores", "ledger", "intake", "publication", "errors.py"
        )
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"now", "utcnow", "today"}
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in {"datetime", "date"}
    ]
    assert reading == []


def test_only_the_ledger_opens_a_database_for_state() -> None:
    """decision 0002: one place opens a database file; others use DuckDB in memory, or attach the catalogue read-only"""
    for file, module in _modules("intake", "publication", "deployment.py", "readers.py"):
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "duckdb.connect":
                database = ast.unparse(node.args[0]) if node.args else "':memory:'"
                assert database == "':memory:'", f"{file}: duckdb.connect({database})"


def test_nothing_private_of_dagster_is_named() -> None:
    """STYLE 9: nothing from ``dagster._core``"""
    for file, module in _modules("."):
        for name in _imported(ast.walk(module)):
            assert not name.startswith("dagster._"), f"{file} names {name}"
