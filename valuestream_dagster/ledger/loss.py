"""Losing the ledger and having it back: a copy taken while in use, put back later, or rebuilt from what readers were given.

A backup is the ledger's one file and its exported segments, with a statement of what they are. A ledger without a backup is rebuilt
from the segments and from the last rows that the published catalogue holds: together they are all exported rows, in their order.
What the catalogue never shows (which objects were looked at, what Dagster was told) is not in them, and is found out anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import duckdb

from valuestream_dagster.errors import LedgerFailure, WrongUse
from valuestream_dagster.ledger.duck import DuckLedger
from valuestream_dagster.ledger.segments import EXPORTED_TABLES

STATEMENT = "backup.json"
LEDGER = "ledger.duckdb"
SEGMENTS = "segments"
_LOST = "_valuestream_lost"


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup says of itself.

    Args:
        created_at: when, as ISO time.
        ledger_id: which ledger it is of; None for one that was never given a name.
        generation: how far it had come.
        bytes: of the ledger's file.
        sha256: of the ledger's file.
    """

    created_at: str
    ledger_id: str | None
    generation: int
    bytes: int
    sha256: str


def back_up(ledger: DuckLedger, segments: Path, target: Path, now: datetime) -> Backup:
    """Copy the ledger into a new folder, while others wait for their turn at it.

    Costs one copy of the ledger's file; segments never change and are linked where the file system can, else copied.

    Raises:
        WrongUse: the folder exists.
        LedgerFailure: the ledger cannot be read.
        OSError: the target cannot be written.
    """
    if target.exists():
        raise WrongUse(f"{target} exists already.", next_step="name a folder that is not there yet.")
    aside = target.with_name(f".{target.name}.partial-{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        with ledger.session() as session:  # opened and closed: what a dead process left beside the file is in it now
            generation, ledger_id = session.read.generation(), session.read.ledger_id()
        with _alone(ledger.path):
            shutil.copyfile(ledger.path, aside / LEDGER)
            if segments.is_dir():
                shutil.copytree(segments, aside / SEGMENTS, copy_function=_link_or_copy)
        sha256, size = _hash(aside / LEDGER)
        backup = Backup(now.isoformat(), ledger_id, generation, size, sha256)
        (aside / STATEMENT).write_text(json.dumps(asdict(backup), indent=1))
        _sync(aside)
        aside.rename(target)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return backup


def read_backup(folder: Path) -> Backup:
    """What a backup says of itself, once its ledger's bytes are those that it states.

    Raises:
        WrongUse: the folder is no backup, or was damaged.
    """
    try:
        backup = Backup(**json.loads((folder / STATEMENT).read_text()))
        sha256, _ = _hash(folder / LEDGER)
    except (OSError, ValueError, TypeError) as error:
        raise WrongUse(f"{folder} is no backup: {error}.", next_step="name a folder that `valuestream backup` made.") from error
    if sha256 != backup.sha256:
        raise WrongUse(
            f"the ledger in {folder} is not the one that was backed up (sha256 {sha256[:12]}, stated is {backup.sha256[:12]}).",
            next_step="take another backup.",
        )
    return backup


def put_back(path: Path, segments: Path, folder: Path, now: datetime) -> Path | None:
    """Let a backup take the ledger's place; where the present one was put aside, or None where there was none.

    Args:
        path: the ledger's file.
        segments: folder of its exported rows.
        folder: the backup.
        now: names what is put aside.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    incoming = path.with_name(f".{path.name}.incoming-{os.getpid()}")
    shutil.copyfile(folder / LEDGER, incoming)
    if (folder / SEGMENTS).is_dir():
        shutil.copytree(folder / SEGMENTS, segments, dirs_exist_ok=True, copy_function=_link_or_copy)
    with _alone(path):
        aside = set_aside(path, now)
        incoming.replace(path)
    _sync(path.parent)
    return aside


def set_aside(path: Path, now: datetime) -> Path | None:
    """Give a file another name beside it, so that nothing is lost; its new name, or None where there was none."""
    if not path.exists():
        return None
    aside = path.with_name(f"{path.name}.before-{now:%Y%m%dT%H%M%S}")
    for left in (path, path.with_name(path.name + ".wal")):
        if left.exists():
            left.replace(aside if left == path else aside.with_name(aside.name + ".wal"))
    return aside


def rebuild(path: Path, catalogue: Path, *, now: Callable[[], datetime]) -> dict[str, int]:
    """Make a lost ledger anew from the published catalogue and the segments that it names; rows by table.

    Args:
        path: where the ledger was; nothing may be there.
        catalogue: the catalogue that readers attach; it names the segments.
        now: the clock, for the schema's own history.

    Raises:
        WrongUse: a ledger is there, or there is no catalogue to rebuild it from.
        LedgerFailure: what there is does not fit together.
    """
    if path.exists():
        raise WrongUse(f"a ledger is there: {path}.", next_step="nothing is lost; if it is damaged, move it away first.")
    if not catalogue.exists():
        raise WrongUse(
            f"there is no catalogue at {catalogue} to rebuild from.",
            next_step="restore a backup; or begin anew: `valuestream recover --older-ledger` offers all sealed deliveries.",
        )
    building = path.with_name(f".{path.name}.rebuilding-{os.getpid()}")
    building.unlink(missing_ok=True)
    try:
        rows = _fill(DuckLedger(building, now=now), catalogue)
        building.with_name(building.name + ".lock").unlink(missing_ok=True)
        os.link(building, path)
    except duckdb.Error as error:
        raise LedgerFailure(
            f"the ledger cannot be rebuilt from {catalogue}: {error}", next_step="restore a backup; nothing was changed."
        ) from error
    finally:
        for left in (building, building.with_name(building.name + ".wal"), building.with_name(building.name + ".lock")):
            left.unlink(missing_ok=True)
    _sync(path.parent)
    return rows


def _fill(ledger: DuckLedger, catalogue: Path) -> dict[str, int]:
    rows: dict[str, int] = {}
    with ledger.session() as session:
        connection = session.connection
        home = connection.execute("SELECT current_database()").fetchall()[0][0]
        quoted = str(catalogue).replace("'", "''")
        connection.execute(f"ATTACH '{quoted}' AS {_LOST} (READ_ONLY)")
        try:
            with session.transaction():
                connection.execute(f"USE {_LOST}.main")  # its views name its own tables
                for table in EXPORTED_TABLES:
                    rows[table] = _copy(connection, table, f'"{home}".main.{table}')
        finally:
            connection.execute(f'USE "{home}".main')
            connection.execute(f"DETACH {_LOST}")
    return rows


def _copy(connection: duckdb.DuckDBPyConnection, table: str, target: str) -> int:
    """Every exported row of a table, in order; a catalogue of an earlier schema has no such table, and no rows of it."""
    known = connection.execute(
        "SELECT count(*) FROM duckdb_views() WHERE database_name = ? AND schema_name = 'valuestream' AND view_name = ?",
        [_LOST, f"_{table}"],
    ).fetchall()[0][0]
    if not known:
        return 0
    connection.execute(f"INSERT INTO {target} BY NAME SELECT * EXCLUDE (_row) FROM valuestream._{table} ORDER BY _row")
    return int(connection.execute(f"SELECT count(*) FROM {target}").fetchall()[0][0])


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """The ledger's turn without opening it: nobody has the file open until this ends."""
    descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _link_or_copy(source: str, target: str) -> str:
    if Path(target).exists():
        return target  # a segment never changes
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
    return target


def _hash(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size


def _sync(folder: Path) -> None:
    """Make a folder's names durable, and the bytes of the files right in it."""
    for path in [*(one for one in folder.iterdir() if one.is_file()), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
