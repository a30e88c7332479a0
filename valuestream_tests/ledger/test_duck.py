"""The ledger file: its schema, its transactions, its migrations, and that nothing in it is ever changed (L10, M18, V1)."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from threading import Barrier

import duckdb
import pytest

from valuestream_dagster.core.decision import Verdict
from valuestream_dagster.core.sequence import IntegerSequence
from valuestream_dagster.errors import LedgerFailure, LedgerTooNew
from valuestream_dagster.ledger.duck import SCHEMA_VERSION, DuckLedger
from valuestream_dagster.ledger.migrations import MIGRATIONS
from valuestream_tests.builders import NOON, Book, Clock

KEY = IntegerSequence().at(1)


def _history(ledger: DuckLedger) -> list[tuple[int]]:
    with ledger.session() as session:
        return session.connection.execute("SELECT version FROM schema_history").fetchall()


def _receipts(ledger: DuckLedger) -> int:
    with ledger.session() as session:
        return len(session.read.receipts(None, 1_000))


@pytest.mark.parametrize("left", [b"", b"no ledger", None], ids=["nothing", "another file", "half of it"])
def test_a_ledger_that_is_damaged_is_refused_and_says_how_to_have_it_back(ledger: DuckLedger, left: bytes | None) -> None:
    """L28"""
    with ledger.session():
        pass
    whole = ledger.path.read_bytes()
    ledger.path.write_bytes(whole[: len(whole) // 2] if left is None else left)
    with pytest.raises(LedgerFailure, match=r"cannot be opened.*`valuestream restore` a backup"), ledger.session():
        pass
    ledger.path.write_bytes(whole)
    with ledger.session() as session:
        assert session.read.generation() == 0


def test_the_schema_is_made_once_and_a_second_opening_is_a_no_op(ledger: DuckLedger) -> None:
    assert _history(ledger) == [(SCHEMA_VERSION,)]
    assert _history(ledger) == [(SCHEMA_VERSION,)]
    assert _history(DuckLedger(ledger.path, now=Clock())) == [(SCHEMA_VERSION,)], "another process opens it"


def test_a_ledger_whose_file_was_put_away_is_made_anew_by_a_running_program(ledger: DuckLedger, tmp_path: Path) -> None:
    assert _receipts(ledger) == 0
    ledger.path.rename(tmp_path / "put-away.duckdb")
    assert _receipts(ledger) == 0


def test_a_ledger_of_a_newer_program_is_refused(ledger: DuckLedger) -> None:
    """V1"""
    with ledger.session() as session:
        session.connection.execute("INSERT INTO schema_history VALUES (99, now()::TIMESTAMP, 'newer')")
    with (
        pytest.raises(LedgerTooNew, match=r"has schema 99.*Next: upgrade"),
        DuckLedger(ledger.path, now=Clock()).session(),
    ):
        pass


def test_a_running_program_notices_that_a_newer_one_has_been_here(ledger: DuckLedger) -> None:
    """V1: a sensor that was started last month must not write into this month's schema"""
    assert _receipts(ledger) == 0
    newer = DuckLedger(ledger.path, now=Clock(), migrations={**MIGRATIONS, SCHEMA_VERSION: lambda _: None})
    assert _receipts(newer) == 0
    with pytest.raises(LedgerTooNew), ledger.session():
        pass


def test_migrations_run_in_order_in_one_transaction_and_only_once(ledger: DuckLedger) -> None:
    """V1"""
    assert _history(ledger) == [(SCHEMA_VERSION,)]
    order: list[str] = []

    def second(connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute("CREATE TABLE added (x INTEGER)")
        order.append("first")

    def third(connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute("INSERT INTO added VALUES (3)")
        order.append("second")

    newer = DuckLedger(ledger.path, now=Clock(), migrations={**MIGRATIONS, SCHEMA_VERSION: second, SCHEMA_VERSION + 1: third})
    assert _history(newer)[-1] == (SCHEMA_VERSION + 2,)
    assert _history(newer)[-1] == (SCHEMA_VERSION + 2,)
    assert order == ["first", "second"]
    with newer.session() as session:
        assert session.connection.execute("SELECT x FROM added").fetchall() == [(3,)]


def test_a_migration_that_fails_leaves_the_ledger_as_it_was(ledger: DuckLedger) -> None:
    """V1, M18"""
    assert _history(ledger) == [(SCHEMA_VERSION,)]

    def second(connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute("CREATE TABLE added (x INTEGER)")

    def third(_: duckdb.DuckDBPyConnection) -> None:
        raise RuntimeError("no")

    newer = DuckLedger(ledger.path, now=Clock(), migrations={**MIGRATIONS, SCHEMA_VERSION: second, SCHEMA_VERSION + 1: third})
    with pytest.raises(RuntimeError), newer.session():
        pass
    assert _history(ledger) == [(SCHEMA_VERSION,)]
    with ledger.session() as session:
        tables = session.connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        assert ("added",) not in tables


def test_there_is_a_migration_from_every_older_schema() -> None:
    assert list(MIGRATIONS) == list(range(1, SCHEMA_VERSION))


def test_a_transaction_that_is_rolled_back_leaves_nothing(ledger: DuckLedger) -> None:
    """L10, M18"""
    with ledger.session() as session:
        book = Book(session)
        with pytest.raises(RuntimeError, match="in the middle"), session.transaction():  # noqa: PT012  # what came before counts
            book.receipt(Verdict.ACCEPTED, KEY)
            book.receipt(Verdict.ACCEPTED, KEY)
            raise RuntimeError("killed in the middle")
        with session.transaction():
            book.receipt(Verdict.REJECTED, KEY)
    with ledger.session() as session:
        assert [receipt.verdict for receipt in session.read.receipts(None, 10)] == [Verdict.REJECTED]


def test_a_session_that_ends_badly_lets_the_next_one_in(ledger: DuckLedger) -> None:
    """FACTS, DuckDB 2: an exception in the body never leaves the file locked"""
    with pytest.raises(KeyboardInterrupt), ledger.session():
        raise KeyboardInterrupt
    assert _receipts(ledger) == 0


def test_what_a_rolled_back_transaction_wanted_to_write_is_not_written_by_the_next_one(ledger: DuckLedger) -> None:
    with ledger.session() as session:
        with pytest.raises(RuntimeError), session.transaction():  # noqa: PT012  # what came before counts
            session.write.run_end("lost", "acme/orders", "ok", NOON)
            raise RuntimeError
        with session.transaction():
            session.write.run_end("kept", "acme/orders", "ok", NOON)
    with ledger.session() as session:
        assert session.connection.execute("SELECT run_id FROM run_ends").fetchall() == [("kept",)]


def test_threads_use_ledgers_of_their_own_at_the_same_time(tmp_path: Path) -> None:
    ledgers = [DuckLedger(tmp_path / str(number) / "ledger.duckdb", now=Clock()) for number in range(2)]
    together = Barrier(2, timeout=60)

    def write(number: int) -> list[tuple[str]]:
        with ledgers[number].session() as session:
            together.wait()  # both are open now
            with session.transaction():
                session.write.run_end(f"of {number}", "acme/orders", "ok", NOON)
            together.wait()
            return session.connection.execute("SELECT run_id FROM run_ends").fetchall()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(write, range(2))) == [[("of 0",)], [("of 1",)]]


def test_one_thread_may_have_two_ledgers_open(tmp_path: Path) -> None:
    one, two = (DuckLedger(tmp_path / name / "ledger.duckdb", now=Clock()) for name in ("one", "two"))
    with one.session() as first, two.session() as second, first.transaction(), second.transaction():
        first.write.run_end("of one", "acme/orders", "ok", NOON)
        second.write.run_end("of two", "acme/orders", "ok", NOON)
    for ledger, name in ((one, "of one"), (two, "of two")):
        with ledger.session() as session:
            assert session.connection.execute("SELECT run_id FROM run_ends").fetchall() == [(name,)]


def test_between_sessions_the_file_is_free_for_any_other_program(ledger: DuckLedger) -> None:
    assert _receipts(ledger) == 0
    script = f"import duckdb; duckdb.connect({str(ledger.path)!r}).execute('SELECT 1')"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_ledger_that_another_program_holds_is_a_failure_that_says_so(ledger: DuckLedger) -> None:
    assert _receipts(ledger) == 0
    shell = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import duckdb; c = duckdb.connect({str(ledger.path)!r}); print(1, flush=True); input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"1\n"
        with (
            pytest.raises(LedgerFailure, match=r"cannot be opened.*Next: end the program that holds it"),
            ledger.session(),
        ):
            pass
    finally:
        shell.communicate(b"\n", timeout=60)
    assert _receipts(ledger) == 0


def test_nothing_in_the_ledgers_source_changes_or_deletes_a_row() -> None:
    """decision 0002: append-only"""
    forbidden = re.compile(
        r"\b(UPDATE\s+\w+\s+SET|DELETE\s+FROM|TRUNCATE|DROP\s+(TABLE|VIEW)|INSERT\s+OR|ON\s+CONFLICT|MERGE\s+INTO)\b",
        re.IGNORECASE,
    )
    folder = resources.files("valuestream_dagster.ledger")
    sources = [file for file in folder.iterdir() if file.name.endswith((".py", ".sql"))]
    assert len(sources) >= 6
    assert [(file.name, found[0]) for file in sources if (found := forbidden.search(file.read_text("utf-8")))] == []


def test_there_is_no_secondary_index_and_no_constraint_but_not_null(ledger: DuckLedger) -> None:
    """decision 0002: uniqueness is the decision itself, taken again inside the recording transaction"""
    with ledger.session() as session:
        assert session.connection.execute("SELECT count(*) FROM duckdb_indexes()").fetchall() == [(0,)]
        kinds = session.connection.execute("SELECT DISTINCT constraint_type FROM duckdb_constraints()").fetchall()
    assert kinds == [("NOT NULL",)]
