"""Dagster's SQLite event log during a long run of our own process: kept open, and forced to disk once per ledger run.

By itself Dagster makes a database engine for every event and opens and closes two files with it. That compiles each statement
anew and makes SQLite fold its write-ahead log back and force both files to disk each time: half of what a delivery costs. The
ledger is the truth and the events can be told again (ruling 15), so it is enough that they are on disk before the ledger notes
that Dagster has them. With another storage (PostgreSQL) nothing here does anything.
"""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from sqlalchemy import event
from sqlalchemy.engine import Connection, Dialect, Engine


@contextmanager
def kept_open() -> Iterator[None]:
    """Hold the log's files open and its statements compiled for the length of a block, and let single events go to disk unhurried.

    Dagster offers no setting for it, so SQLAlchemy's own events do it for every SQLite engine that this process makes meanwhile.
    Inside of another such block it does nothing.
    """
    if event.contains(Engine, "do_connect", _KEPT.connect):
        yield
        return
    event.listen(Engine, "do_connect", _KEPT.connect)
    event.listen(Engine, "engine_connect", _KEPT.share)
    try:
        yield
    finally:
        event.remove(Engine, "engine_connect", _KEPT.share)
        event.remove(Engine, "do_connect", _KEPT.connect)
        _KEPT.close()


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


class _KeptConnection(sqlite3.Connection):
    """Goes back to the idle ones when SQLAlchemy closes it: closing the last connection to a file folds its log back."""

    idle: list[_KeptConnection]

    def close(self) -> None:
        """Leave nothing unfinished; ``let_go`` is what closes it."""
        self.rollback()
        self.idle.append(self)

    def let_go(self) -> None:
        """Close it."""
        super().close()


class _Kept:
    """The connections per SQLite file that nobody uses just now, and one set of compiled statements for all engines."""

    def __init__(self) -> None:
        self._idle: defaultdict[str, list[_KeptConnection]] = defaultdict(list)
        self._dialect: Dialect | None = None
        self._compiled: dict[Any, Any] = {}

    def connect(self, dialect: Dialect, _record: object, place: list[Any], options: dict[str, Any]) -> Any:
        """A connection for an engine that wants to make one; None lets another kind of database make its own."""
        if dialect.name != "sqlite" or not place or ":memory:" in str(place[0]):
            return None
        idle = self._idle[str(place[0])]
        try:
            return idle.pop()
        except IndexError:
            connection = sqlite3.connect(
                *place, **{**options, "check_same_thread": False}, factory=_KeptConnection
            )
            connection.idle = idle
            connection.execute("PRAGMA synchronous = NORMAL")
            return connection

    def share(self, connection: Connection) -> None:
        """Let statements be compiled once, not once per engine: engines of one kind of database compile alike."""
        if connection.dialect.name == "sqlite":
            self._dialect = self._dialect or connection.dialect
            connection.dialect = self._dialect
            connection.execution_options(compiled_cache=self._compiled)

    def close(self) -> None:
        """Let go of the files, which folds their logs back and forces them to disk."""
        while self._idle:
            for connection in self._idle.popitem()[1]:
                connection.let_go()


_KEPT = _Kept()
