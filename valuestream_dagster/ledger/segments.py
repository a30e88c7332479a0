"""Exporting ledger rows as immutable Parquet segments, so that what readers see of history costs the same at any length.

Rows of each table in insertion order; a segment is cut whenever enough new rows have gathered, and never changes. Rows
after the last segment (the *tail*) are copied into each catalogue. A lost ledger is rebuilt from these files later on.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from valuestream_dagster.ledger.duck import LedgerSession

EXPORTED_TABLES = (
    "feed_versions", "receipts", "deliveries", "epochs", "runs", "run_ends", "slice_events", "publications", "files",
    "lineage", "rulings", "attempts", "voided", "computations", "removals",
    "ledger_identity",
)  # fmt: skip
SEGMENT_ROWS = 5_000


@dataclass(frozen=True, slots=True)
class ExportedTable:
    """One table as readers find it: its segment files (absolute), and the first row number of its tail."""

    name: str
    segments: tuple[Path, ...]
    tail_from: int


def export_segments(
    session: LedgerSession, folder: Path, now: Callable[[], datetime], segment_rows: int = SEGMENT_ROWS
) -> tuple[ExportedTable, ...]:
    """Cut a segment of every table whose tail has grown to ``segment_rows``; say where each table's rows are.

    Costs one count per table; a segment of 5,000 rows about 20 ms, once in 5,000 rows.
    """
    known: dict[str, list[tuple[int, str]]] = {}
    for table, to_row, path in session.connection.execute(
        'SELECT "table", to_row, path FROM segments ORDER BY rowid'
    ).fetchall():
        known.setdefault(table, []).append((to_row, path))
    answer: list[ExportedTable] = []
    for table in EXPORTED_TABLES:
        tail_from = max((to_row for to_row, _ in known.get(table, [])), default=0)
        waiting, last = session.connection.execute(
            f"SELECT count(*), max(rowid) FROM {table} WHERE rowid >= {tail_from}"
        ).fetchall()[0]
        paths = [path for _, path in known.get(table, [])]
        if waiting >= segment_rows and last is not None:
            paths.append(_cut(session, table, tail_from, last + 1, folder, now()))
            tail_from = last + 1
        answer.append(ExportedTable(table, tuple(folder / path for path in paths), tail_from))
    return tuple(answer)


def _cut(session: LedgerSession, table: str, from_row: int, to_row: int, folder: Path, at: datetime) -> str:
    """Write one segment aside, make it durable, give it its name, and record it."""
    relative = f"{table}/{from_row:012d}-{to_row:012d}-{uuid4().hex[:8]}.parquet"
    final = folder / relative
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = final.with_suffix(".tmp")
    session.connection.execute(
        f"""COPY (SELECT rowid AS _row, * FROM {table} WHERE rowid >= {from_row} AND rowid < {to_row} ORDER BY rowid)
            TO '{str(temporary).replace("'", "''")}' (FORMAT parquet, COMPRESSION zstd)"""
    )
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    temporary.rename(final)
    _fsync_folder(final.parent)
    with session.transaction():
        session.write.segment(table, from_row=from_row, to_row=to_row, path=relative, sha256=sha256, at=at)
    return relative


def _fsync_folder(folder: Path) -> None:
    """A name is durable when its folder is; the ledger's row that names the file must not outlive it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
