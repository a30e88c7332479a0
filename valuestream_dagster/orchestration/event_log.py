"""Dagster's SQLite event log during a long run of our own process: kept open, and forced to disk once per ledger run.

By itself Dagster opens and closes two database files for every event, which makes SQLite fold its write-ahead log back and
force both files to disk each time. The ledger is the truth and the events can be told again (ruling 15), so it is enough
that they are on disk before the ledger notes that Dagster has them. With another storage (PostgreSQL) nothing here does anything.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from sqlalchemy import event
from sqlalchemy.engine import Engine


@contextmanager
def kept_open() -> Iterator[None]:
    """Hold the log's files open for the length of a block, and let single events go to disk unhurried."""
    keeper = _Keeper()
    event.listen(Engine, "connect", keeper.connected)
    try:
        yield
    finally:
        event.remove(Engine, "connect", keeper.connected)
        keeper.close()


def make_durable(instance: dg.DagsterInstance, run_id: str | None = None) -> None:
    """Force to disk what was logged so far, across runs and of one run; the WAL file is the only one not forced."""
    folder = Path(instance.root_directory) / "history" / "runs"
    for name in ("index", *([run_id] if run_id else [])):
        try:
            descriptor = os.open(folder / f"{name}.db-wal", os.O_RDWR)
        except FileNotFoundError:
            continue  # another storage, or folded back, which forces it
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _Keeper:
    """One idle connection per SQLite file: while it is open, closing another one does not fold the log back."""

    def __init__(self) -> None:
        self._kept: dict[str, sqlite3.Connection] = {}
        self._settled: set[str] = set()

    def connected(self, connection: object, _record: object) -> None:
        """A connection was made somewhere in this process."""
        if not isinstance(connection, sqlite3.Connection):
            return
        connection.execute("PRAGMA synchronous = NORMAL")
        path = str(connection.execute("PRAGMA database_list").fetchone()[2])
        if not path or path in self._settled:
            return
        if path not in self._kept:
            self._kept[path] = sqlite3.connect(path, check_same_thread=False)
        # Only a connection that has read the file since it has a write-ahead log keeps that log alive.
        self._kept[path].execute("SELECT count(*) FROM sqlite_master").fetchall()
        if self._kept[path].execute("PRAGMA journal_mode").fetchone()[0] == "wal":
            self._settled.add(path)

    def close(self) -> None:
        """Let go of the files, which folds their logs back and forces them to disk."""
        for connection in self._kept.values():
            connection.close()
