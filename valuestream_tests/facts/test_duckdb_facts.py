"""What DuckDB really does where the ledger and the catalogue rely on it; each fact names the decision that it serves."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

_HOLD = """
import sys, duckdb
held = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "reader")
print("open", flush=True)
sys.stdin.read()
"""


@contextmanager
def _other_process(path: Path, access: str) -> Iterator[None]:
    """Another process that has the database open, as ``reader`` or ``writer``."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path), access], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield
    finally:
        process.communicate(timeout=60)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "some.duckdb"
    with duckdb.connect(str(made)) as connection:
        connection.execute("CREATE TABLE t (n INTEGER)")
    return made


@pytest.mark.parametrize(("holder", "read_only"), [("writer", False), ("writer", True), ("reader", False)])
def test_one_process_at_a_time_readers_too(path: Path, holder: str, read_only: bool) -> None:
    """Decision 0002: sessions are short and queue; decision 0003: readers never open the ledger."""
    with _other_process(path, holder), pytest.raises(duckdb.IOException, match="lock"):
        duckdb.connect(str(path), read_only=read_only)
    duckdb.connect(str(path), read_only=read_only).close()


def test_several_processes_may_read_at_once(path: Path) -> None:
    """Decision 0003: the catalogue is read-only, so that no reader keeps another out."""
    with _other_process(path, "reader"):
        duckdb.connect(str(path), read_only=True).close()


def test_closing_any_other_descriptor_of_the_file_drops_the_lock(path: Path) -> None:
    """Decision 0002: the ledger file is never opened, copied or hashed by Python, and the queue is a sibling file."""
    with duckdb.connect(str(path)):
        os.close(os.open(path, os.O_RDONLY))
        with _other_process(path, "writer"):
            pass  # it came in although we have the file open


def test_a_sibling_flock_does_not_disturb_the_databases_own_lock(path: Path) -> None:
    """Decision 0002."""
    lock = os.open(path.with_name("some.duckdb.lock"), os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with duckdb.connect(str(path)):
        os.close(lock)
        with pytest.raises(AssertionError), _other_process(path, "writer"):
            pass


def test_rowids_of_appended_rows_are_their_order_and_survive_reopening(path: Path) -> None:
    """Decision 0002: the newest row is the one with the highest row number, over statements, transactions and openings."""
    with duckdb.connect(str(path)) as connection:
        connection.execute("INSERT INTO t SELECT * FROM range(5000)")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO t VALUES (5000), (5001)")
        connection.execute("INSERT INTO t VALUES (5002)")
        assert connection.execute("SELECT max(n), arg_max(n, rowid) FROM t").fetchall() == [(5002, 5002)], (
            "also before commit"
        )
        connection.execute("COMMIT")
    with duckdb.connect(str(path)) as connection:
        connection.execute("INSERT INTO t VALUES (5003)")
        rows = connection.execute("SELECT rowid, n FROM t ORDER BY rowid").fetchall()
    assert rows == [(n, n) for n in range(5004)]


def test_a_rolled_back_insert_leaves_no_hole_in_the_rowids(path: Path) -> None:
    """Ruling 15: segments are ranges of row numbers."""
    with duckdb.connect(str(path)) as connection:
        connection.execute("INSERT INTO t VALUES (0)")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO t SELECT * FROM range(100)")
        connection.execute("ROLLBACK")
        connection.execute("INSERT INTO t VALUES (1)")
        assert connection.execute("SELECT rowid, n FROM t").fetchall() == [(0, 0), (1, 1)]


def test_arg_max_passes_over_rows_whose_argument_is_null() -> None:
    """The ledger's reading relies on it in ``position``, and avoids it where a newest NULL must count."""
    found = duckdb.connect().execute("SELECT arg_max(a, n) FROM (VALUES ('x', 1), (NULL, 2)) v(a, n)").fetchall()
    assert found == [("x",)]


def test_an_uncommitted_transaction_is_gone_when_the_connection_closes(path: Path) -> None:
    """M18: a session that ends without COMMIT has written nothing."""
    with duckdb.connect(str(path)) as connection:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO t VALUES (1)")
    with duckdb.connect(str(path)) as connection:
        assert connection.execute("FROM t").fetchall() == []


def test_ddl_is_part_of_a_transaction(path: Path) -> None:
    """V1: a migration that fails leaves the schema as it was."""
    with duckdb.connect(str(path)) as connection:
        connection.execute("BEGIN")
        connection.execute("CREATE TABLE u (n INTEGER)")
        connection.execute("ROLLBACK")
        with pytest.raises(duckdb.CatalogException):
            connection.execute("FROM u")


def test_a_transaction_writes_one_attached_database_only(path: Path, tmp_path: Path) -> None:
    """Decision 0003: the catalogue is built outside the recording transaction."""
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"ATTACH '{tmp_path / 'other.duckdb'}' AS other")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(duckdb.TransactionException):
            connection.execute("CREATE TABLE other.u (n INTEGER)")


def test_an_attached_file_may_be_made_in_the_form_that_older_releases_read(tmp_path: Path) -> None:
    """Decision 0003: storage version v1.0.0; a default file is not in it."""
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{tmp_path / 'old.duckdb'}' AS old (STORAGE_VERSION 'v1.0.0')")
        connection.execute(f"ATTACH '{tmp_path / 'new.duckdb'}' AS new")
        tags = dict(connection.execute("SELECT database_name, tags FROM duckdb_databases()").fetchall())
    assert tags["old"]["storage_version"].startswith("v1.0.0")
    assert not tags["new"]["storage_version"].startswith("v1.0.0")


def test_copy_overwrites_silently(tmp_path: Path) -> None:
    """Write once is ours to see to: write aside, then link, which refuses."""
    target = tmp_path / "t.parquet"
    with duckdb.connect() as connection:
        for number in (1, 2):
            connection.execute(f"COPY (SELECT {number} AS n) TO '{target}' (FORMAT parquet)")
        assert connection.execute(f"SELECT n FROM '{target}'").fetchall() == [(2,)]
    other = tmp_path / "u.parquet"
    other.write_bytes(b"x")
    with pytest.raises(FileExistsError):
        os.link(target, other)


def test_a_view_finds_its_own_schema_whatever_the_reader_calls_the_database(tmp_path: Path) -> None:
    """Decision 0003: views name ``valuestream._table`` without a database, and readers choose the alias."""
    path = tmp_path / "catalogue.duckdb"
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{path}' AS built")
        connection.execute("CREATE SCHEMA built.inner_")
        connection.execute("CREATE TABLE built.inner_._t AS SELECT 7 AS n")
        connection.execute("USE built")
        connection.execute("CREATE VIEW inner_.v AS SELECT n FROM inner_._t")
    with duckdb.connect() as reader:
        reader.execute(f"ATTACH '{path}' AS another (READ_ONLY)")
        assert reader.execute("FROM another.inner_.v").fetchall() == [(7,)], "without USE too"


def test_union_by_name_is_needed_for_columns_that_the_first_file_lacks(tmp_path: Path) -> None:
    """Ruling 12: the view reads every list of files with it."""
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT 1 AS a) TO '{tmp_path / '1.parquet'}' (FORMAT parquet)")
        connection.execute(f"COPY (SELECT 2 AS a, 3 AS b) TO '{tmp_path / '2.parquet'}' (FORMAT parquet)")
        files = f"['{tmp_path / '1.parquet'}', '{tmp_path / '2.parquet'}']"
        without = connection.execute(f"DESCRIBE FROM read_parquet({files})").fetchall()
        with_it = connection.execute(f"DESCRIBE FROM read_parquet({files}, union_by_name=true)").fetchall()
    assert [row[0] for row in without] == ["a"]
    assert [row[0] for row in with_it] == ["a", "b"]
