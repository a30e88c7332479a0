"""What is written comes back as it was: times in UTC, lists, findings, many rows in their order (M9, M18, M20, C17)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from valuestream_dagster.core.decision import Verdict
from valuestream_dagster.core.manifest import Kind, SealedFile
from valuestream_dagster.core.sequence import IntegerSequence
from valuestream_dagster.ledger.duck import LedgerSession
from valuestream_dagster.ledger.rows import Publication, PublishedFile, Receipt, RunRow, SeenObject
from valuestream_dagster.ledger.writing import to_naive_utc
from valuestream_tests.builders import NOON, Book, digest

KEY = IntegerSequence().at(7)


def test_times_are_stored_as_utc_without_a_zone_and_come_back_aware(session: LedgerSession) -> None:
    """decision 0002: no reader needs a time zone extension"""
    brussels = datetime(2026, 7, 1, 2, 30, tzinfo=timezone(timedelta(hours=2)))
    assert to_naive_utc(brussels) == datetime(2026, 7, 1, 0, 30)
    with session.transaction():
        session.write.run(RunRow("r", "a/b", 1, "host:1", brussels), "hash")
    assert session.connection.execute("SELECT started_at FROM runs").fetchall() == [(datetime(2026, 7, 1, 0, 30),)]
    started = session.read.open_runs("a/b")[0].started_at
    assert (started, started.tzinfo) == (brussels, UTC)


def test_a_receipt_comes_back_with_every_field(session: LedgerSession) -> None:
    """M20"""
    receipt = Receipt(
        "id", NOON, "acme/orders", Verdict.REJECTED, "size_mismatch", "it's \"short\"\nhere", "ask acme", "in/x.manifest.json",
        Kind.DELTA, KEY, 3, digest("X").hex, ("one", "two"), ({"code": "size_mismatch", "line": 4, "file": None},), "run", "ff",
    )  # fmt: skip
    unread = Receipt("id2", NOON, "acme/orders", Verdict.WAITING, "manifest_unsettled", "d", "", "y.manifest.json")
    with session.transaction():
        session.write.receipts([receipt, unread])
    assert session.read.receipts("acme/orders", 10) == (receipt, unread)


def test_a_publication_comes_back_with_its_files_its_lineage_and_exact_totals(session: LedgerSession) -> None:
    """M18, C17: key, previous key, object and version, run, position"""
    publication = Publication(
        "p", "acme/orders", Kind.DELTA, KEY, 2, digest("X"), "hash", "run", 10**12, 10**13, NOON, 3, previous_key="6",
        position="7", totals=(("amount", "12345678901234567.89"),),
        files=(PublishedFile("published/a.parquet", "a" * 64, 5, 1), PublishedFile("published/b.parquet", "b" * 64, 6, 2)),
        lineage=(SealedFile("data", "b.csv", "c" * 64, 9, "s3://in/b.csv", "v2"), SealedFile("data", "a.csv", "d" * 64, 9, "u")),
    )  # fmt: skip
    with session.transaction():
        session.write.publication(publication)
    assert session.read.publication("p") == publication
    assert session.read.publication("none") is None
    assert publication.data_version == f"r2-{digest('X').hex[:12]}"


def test_rows_keep_the_order_in_which_they_were_written_over_many_statements(session: LedgerSession) -> None:
    """decision 0002: the newest row is the one with the highest row number"""
    book = Book(session)
    with session.transaction():
        session.write.receipts([])
        session.write.objects_seen("a/b", (SeenObject(f"f{n}", "s", "m") for n in range(1_234)), NOON)
        for number in range(450):
            book.receipt(Verdict.ACCEPTED, KEY, number)
    rows = session.connection.execute("SELECT rowid, path FROM objects_seen ORDER BY rowid").fetchall()
    assert rows == [(n, f"f{n}") for n in range(1_234)]
    assert [receipt.revision for receipt in session.read.receipts("acme/orders", 1_000)] == list(range(450))


def test_the_newest_receipts_are_given_oldest_first_and_of_all_feeds_where_none_is_named(
    session: LedgerSession,
) -> None:
    """M20"""
    for feed in ("a/b", "c/d"):
        with session.transaction():
            for revision in (1, 2, 3):
                Book(session, feed).receipt(Verdict.ACCEPTED, KEY, revision)
    assert [receipt.revision for receipt in session.read.receipts("a/b", 2)] == [2, 3]
    assert [(receipt.feed, receipt.revision) for receipt in session.read.receipts(None, 4)] == [
        ("a/b", 3), ("c/d", 1), ("c/d", 2), ("c/d", 3),
    ]  # fmt: skip
