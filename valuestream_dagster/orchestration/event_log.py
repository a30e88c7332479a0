"""Dagster's SQLite event log during a long run of our own process: kept open, and forced to disk once per ledger run.

By itself Dagster makes a database engine for every event and opens and closes two files with it. That compiles each statement
anew and makes SQLite fold its write-ahead log back and force both files to disk each time: half of what a delivery costs. The
ledger is the truth and the events can be told again (ruling 15), so it is enough that they are on disk before the ledger notes
that Dagster has them. With another storage (PostgreSQL) nothing here does anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import sqlalchemy
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from sqlalchemy.engine import Engine


@contextmanager
def kept_open() -> Iterator[None]:
    """Let the SQLite event log keep one engine per file for the length of a block, and let single events go to disk unhurried.

    Dagster offers no setting for it, so the function by which its storage makes engines is replaced meanwhile, in this process
    alone. A test notices when Dagster makes them in another way; then a run is slower, and otherwise the same. Inside of
    another such block it does nothing.
    """
    engines, names = _Engines(), vars(sqlite_event_log)
    original = names.get("create_engine")
    if original is None or isinstance(getattr(original, "__self__", None), _Engines):
        yield
        return
    names["create_engine"] = engines.of
    try:
        yield
    finally:
        names["create_engine"] = original
        engines.close()


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


class _Engines:
    """One engine with a pool of connections per SQLite file."""

    def __init__(self) -> None:
        self._engines: dict[str, Engine] = {}

    def of(self, url: str, *, connect_args: Mapping[str, Any] | None = None, **_no_pool: object) -> Engine:
        """The file's engine; its connections outlive Dagster's use of them, because closing the last one folds the log back."""
        if url not in self._engines:
            engine = self._engines[url] = sqlalchemy.create_engine(url, connect_args=dict(connect_args or {}))
            # Dagster disposes of an engine after each use, which would empty the pool.
            engine.dispose = lambda *_: None  # type: ignore[method-assign]
            sqlalchemy.event.listen(engine, "connect", _unhurried)
        return self._engines[url]

    def close(self) -> None:
        """Let go of the files, which folds their logs back and forces them to disk."""
        for engine in self._engines.values():
            engine.pool.dispose()


def _unhurried(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA synchronous = NORMAL")
