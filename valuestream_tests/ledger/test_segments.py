"""Segments: rows of each table in order, cut at a size, never changed, never lost (ruling 15)."""

from __future__ import annotations

import hashlib
from pathlib import Path

import duckdb
import pytest

from valuestream_dagster.core.decision import Verdict
from valuestream_dagster.core.sequence import IntegerSequence
from valuestream_dagster.ledger.duck import LedgerSession
from valuestream_dagster.ledger.segments import EXPORTED_TABLES, ExportedTable, export_segments
from valuestream_tests.builders import Book, Clock

# Not exported: discovery's memory and Dagster's mirror (both made again by looking), and the segments themselves.
_LEFT_OUT = {"objects_seen", "reported", "segments", "schema_history"}


def _export(session: LedgerSession, folder: Path, segment_rows: int) -> ExportedTable:
    exported = {table.name: table for table in export_segments(session, folder, Clock(), segment_rows)}
    return exported["receipts"]


def _receipts(book: Book, first: int, last: int) -> None:
    with book.session.transaction():
        for number in range(first, last + 1):
            book.receipt(Verdict.ACCEPTED, IntegerSequence().at(number))


def _rows(table: ExportedTable) -> list[int]:
    files = [str(path) for path in table.segments]
    found = duckdb.connect().execute(
        "SELECT ordinal FROM read_parquet(?, file_row_number = true) ORDER BY _row", [files]
    )
    return [row[0] for row in found.fetchall()]


def test_every_table_that_holds_what_cannot_be_seen_again_is_exported(session: LedgerSession) -> None:
    """ruling 15: a lost ledger is rebuilt from them"""
    tables = {row[0] for row in session.connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    assert set(EXPORTED_TABLES) == tables - _LEFT_OUT


def test_a_segment_is_cut_when_enough_rows_have_gathered_and_the_rest_is_the_tail(book: Book, tmp_path: Path) -> None:
    _receipts(book, 1, 9)
    table = _export(book.session, tmp_path, 10)
    assert (table.segments, table.tail_from) == ((), 0)
    _receipts(book, 10, 12)
    table = _export(book.session, tmp_path, 10)
    assert (len(table.segments), table.tail_from) == (1, 12)
    assert _rows(table) == list(range(1, 13))
    _receipts(book, 13, 14)
    assert _export(book.session, tmp_path, 10) == table, "two rows are no segment"
    _receipts(book, 15, 30)
    table = _export(book.session, tmp_path, 10)
    assert (len(table.segments), table.tail_from) == (2, 30)
    assert _rows(table) == list(range(1, 31)), "nothing twice, nothing lost, in order"


def test_a_segment_holds_what_was_recorded_of_it_and_is_never_touched_again(book: Book, tmp_path: Path) -> None:
    _receipts(book, 1, 10)
    first = _export(book.session, tmp_path, 10).segments[0]
    before = (first.read_bytes(), first.stat().st_mtime_ns)
    recorded = book.session.connection.execute(
        """SELECT "table", from_row, to_row, path, sha256 FROM segments WHERE "table" = 'receipts'"""
    ).fetchall()
    path = str(first.relative_to(tmp_path))
    assert recorded == [("receipts", 0, 10, path, hashlib.sha256(before[0]).hexdigest())]
    _receipts(book, 11, 40)
    _export(book.session, tmp_path, 10)
    assert (first.read_bytes(), first.stat().st_mtime_ns) == before
    assert list(tmp_path.rglob("*.tmp")) == []


def test_rows_of_a_rolled_back_transaction_are_neither_counted_nor_skipped(book: Book, tmp_path: Path) -> None:
    """M18"""
    _receipts(book, 1, 4)
    with pytest.raises(RuntimeError), book.session.transaction():  # noqa: PT012  # what came before counts
        for number in range(100, 150):
            book.receipt(Verdict.ACCEPTED, IntegerSequence().at(number))
        raise RuntimeError
    assert _export(book.session, tmp_path, 5).segments == ()
    _receipts(book, 5, 6)
    assert _rows(_export(book.session, tmp_path, 5)) == list(range(1, 7))


def test_a_file_that_was_cut_and_not_recorded_is_cut_again_under_another_name(book: Book, tmp_path: Path) -> None:
    """L7: a kill between the two leaves a file that nothing names"""
    (tmp_path / "receipts").mkdir()
    orphan = tmp_path / "receipts" / "000000000000-000000000010-deadbeef.parquet"
    orphan.write_bytes(b"half")
    _receipts(book, 1, 10)
    table = _export(book.session, tmp_path, 10)
    assert orphan not in table.segments
    assert _rows(table) == list(range(1, 11))


def test_a_folder_that_was_moved_is_named_where_it_is_now(book: Book, tmp_path: Path) -> None:
    _receipts(book, 1, 10)
    _export(book.session, tmp_path / "old", 10)
    (tmp_path / "old").rename(tmp_path / "new")
    assert _rows(_export(book.session, tmp_path / "new", 10)) == list(range(1, 11))
