"""The ledger file: queueing for it, opening it for a slice of time, transactions, migrations. Rows are handled elsewhere.

DuckDB lets one process in at a time, readers too, so every opening is short and queues on a *sibling* lock file, which
the kernel hands over fairly; the ledger file itself is never opened by Python, because closing such a descriptor would
drop DuckDB's own lock (decision 0002).
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from importlib import metadata, resources
from pathlib import Path
from tempfile import gettempdir

import duckdb

from valuestream_dagster.errors import LedgerFailure, LedgerTooNew
from valuestream_dagster.ledger.migrations import MIGRATIONS, Migration
from valuestream_dagster.ledger.reading import LedgerReader
from valuestream_dagster.ledger.writing import LedgerWriter, to_naive_utc

SCHEMA_VERSION = 1 + len(MIGRATIONS)


class LedgerSession:
    """The ledger, open and ours alone. ``read`` may be used at any time, ``write`` inside ``transaction``."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        self.write = LedgerWriter(connection)
        self._reader = LedgerReader(connection)

    @property
    def read(self) -> LedgerReader:
        """The questions; what was written before them is seen by them."""
        self.write.flush()
        return self._reader

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing: what is written inside is committed at the end, or rolled back on any exception (L10, M18)."""
        self.connection.execute("BEGIN")
        try:
            yield
            self.write.flush()
        except BaseException:
            self.write.discard()
            self.connection.execute("ROLLBACK")
            raise
        try:
            self.connection.execute("COMMIT")
        except duckdb.Error as error:
            raise LedgerFailure(
                f"the ledger could not commit: {error}",
                next_step="free space or repair the disk, then run it again; nothing of the transaction was kept.",
            ) from error


class DuckLedger:
    """A ledger in one DuckDB file.

    Args:
        path: the file; made, with its folder, when it is opened first.
        now: the clock, for the schema's own history.
        migrations: the steps from the oldest schema to this program's.
    """

    def __init__(
        self, path: Path, *, now: Callable[[], datetime], migrations: Mapping[int, Migration] = MIGRATIONS
    ) -> None:
        self.path = path
        self._now = now
        self._migrations = migrations

    @contextmanager
    def session(self) -> Iterator[LedgerSession]:
        """The ledger for one slice of time: wait for our turn, open, hand out, close.

        Costs a few milliseconds whatever the ledger's size, 25 more for a thread's first one. Callers do many deliveries
        in one session, and keep it under a second or so because everybody else waits.

        Raises:
            LedgerFailure: the file cannot be opened.
            LedgerTooNew: it was written by a newer program.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _turn(self.path.with_name(self.path.name + ".lock")), _attached(self.path) as connection:
            self._prepare(connection)
            session = LedgerSession(connection)
            yield session
            session.write.flush()

    def _prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Bring the schema to this program's version, in one transaction (V1: exclusive, since nobody else is in).

        Asked at every opening, for about a millisecond: a newer program may have been here since this one's last.
        """
        found, wanted = _schema_version(connection), 1 + len(self._migrations)
        if found > wanted:
            raise LedgerTooNew(
                f"the ledger {self.path} has schema {found}, this program knows {wanted}.",
                next_step="upgrade valuestream-dagster, or restore a backup made with this version.",
            )
        if found == wanted:
            return
        connection.execute("BEGIN")
        if found == 0:
            connection.execute(resources.files("valuestream_dagster.ledger").joinpath("schema.sql").read_text("utf-8"))
        else:
            for version in range(found, wanted):
                self._migrations[version](connection)
        connection.execute(
            "INSERT INTO schema_history VALUES (?, ?, ?)",
            [wanted, to_naive_utc(self._now()), _program_version()],
        )
        connection.execute("COMMIT")


@contextmanager
def _turn(lock: Path) -> Iterator[None]:
    """Our turn at the ledger: a blocking ``flock``, which is fair among waiting processes."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# No source can bear this name, so that no schema of the catalogue, which is built beside the ledger, is taken for it.
_ALIAS = "_valuestream_ledger"


class _Kept(threading.local):
    """Each thread's own DuckDB, without data: starting one costs ten times what attaching a file to it does."""

    def __init__(self) -> None:
        self._idle: duckdb.DuckDBPyConnection | None = None
        self._process = 0

    def take(self) -> duckdb.DuckDBPyConnection:
        """The thread's, unless it is in use; a forked child, which cannot use its parent's, gets another."""
        idle, self._idle = self._idle, None
        if idle is not None and self._process == os.getpid():
            return idle
        self._process = os.getpid()
        # One thread: the ledger's queries are small, and the cores belong to the payload.
        return duckdb.connect(":memory:", config={"threads": 1, "temp_directory": _scratch()})

    def give_back(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Keep it for the next time."""
        if self._idle is None:
            self._idle = connection
        else:
            connection.close()


def _scratch() -> str:
    try:
        return gettempdir()
    except OSError as error:
        raise LedgerFailure(
            f"no temporary folder can be written: {error}", next_step="free space, or let TMPDIR name a folder that has some."
        ) from error


_kept = _Kept()


@contextmanager
def _attached(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection whose default database is the ledger; nobody else gets in until the block ends."""
    connection = _kept.take()
    file = str(path).replace("'", "''")
    try:
        connection.execute(f"ATTACH '{file}' AS {_ALIAS}; USE {_ALIAS}.main")
    except duckdb.Error as error:
        connection.close()
        held = "lock" in str(error)  # DuckDB has no error of its own for it
        raise LedgerFailure(
            f"the ledger {path} cannot be opened: {error}",
            next_step="end the program that holds it (any DuckDB shell on this file does)."
            if held
            else "`valuestream restore` a backup; where there is none, move the file away and run `valuestream rebuild`.",
        ) from error
    try:
        yield connection
        _detach(connection, path)
    except BaseException:
        connection.close()  # which lets go of the file whatever is unfinished in it; a detached one stays open until that is over
        raise
    _kept.give_back(connection)


def _detach(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Let go of the file, which folds its log into it."""
    try:
        connection.execute(f"USE memory.main; DETACH {_ALIAS}")
    except duckdb.Error as error:
        raise LedgerFailure(
            f"the ledger {path} could not be closed: {error}",
            next_step="free space or repair the disk, then run it again; what was committed is kept in the ledger's log.",
        ) from error


def _schema_version(connection: duckdb.DuckDBPyConnection) -> int:
    # `fetchall`, not `fetchone`: DuckDB 2 takes no other work while a result is not read to its end.
    try:
        return int(connection.execute("SELECT coalesce(max(version), 0) FROM schema_history").fetchall()[0][0])
    except duckdb.CatalogException:
        return 0  # the file is new


def _program_version() -> str:
    try:
        return metadata.version("valuestream-dagster")
    except metadata.PackageNotFoundError:
        return "unknown"
