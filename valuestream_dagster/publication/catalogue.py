"""The catalogue: a small read-only DuckDB file of views that readers attach, replaced whole by one rename.

Built from the ledger while its lock is held, so that a later catalogue never shows less than an earlier one. It names
explicit file lists with absolute paths, is stored in a form that DuckDB 1.3 and 1.4 open too, and has mode 0444 because a
reader that opened it for writing would block the others (decision 0003).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import uuid4

import duckdb

from valuestream_dagster.errors import LedgerFailure, StoreFailure, WrongUse
from valuestream_dagster.feeds.computation import computation_hash, decisive_text
from valuestream_dagster.feeds.feed import Feed, Shape, shape_from_json, shape_json
from valuestream_dagster.intake.csv_sql import identifier, literal
from valuestream_dagster.ledger.asking import VISIBLE
from valuestream_dagster.ledger.duck import LedgerSession
from valuestream_dagster.ledger.segments import ExportedTable, export_segments
from valuestream_dagster.publication.views import PUBLIC_VIEWS, VisibleFile, feed_views, raw_rows, refusing_views

_STORAGE_VERSION = "v1.0.0"
# The name of the file being built, within the ledger's connection. No declared source can bear it (they begin with a letter
# or digit), and every statement names it, because a source may well be called `ledger`.
_NEW = "_valuestream_new"

_VISIBLE = f"""
    SELECT feed, kind, key, ordinal, revision, epoch, publication_id, computation_hash FROM good_publications WHERE {VISIBLE}"""


def publish_catalogue(
    session: LedgerSession, *, path: Path, store: Path, segments: Path, now: Callable[[], datetime]
) -> int:
    """Build the catalogue of what the ledger says is visible now and rename it into place; returns its generation.

    Costs one pass over the visible publications (67 ms at a thousand files), nothing that grows with receipts or runs.

    Args:
        session: the ledger, open; its lock is held until the rename is done.
        path: where readers look.
        store: folder below which published files lie.
        segments: folder of the ledger's exported rows.
        now: the clock.

    Raises:
        StoreFailure: the file cannot be written.
        LedgerFailure: the ledger knows less than the catalogue that is there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    known_state(session, path=path, store=store)
    temporary = path.with_name(f"{path.name}.{uuid4().hex[:8]}.tmp")
    generation = session.read.generation()
    exported = export_segments(session, segments, now)
    try:
        _build(session, temporary, exported, store, generation, now())
        temporary.chmod(0o444)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        # A reader that was killed while it had the old file open for writing leaves a log that no later file survives.
        path.with_name(path.name + ".wal").unlink(missing_ok=True)
        temporary.replace(path)
        _fsync_folder(path.parent)
    except (OSError, duckdb.IOException) as error:
        raise StoreFailure(
            f"the catalogue {path} could not be written: {error}",
            next_step="free space or repair the folder's permissions; the ledger is unharmed, run any command again.",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
        temporary.with_name(temporary.name + ".wal").unlink(missing_ok=True)
    return generation


def record_feed_version(session: LedgerSession, feed: Feed, at: datetime) -> bool:
    """Keep a feed's declaration by its hash when it is new or changed (L26); whether it was. Inside a transaction.

    Raises:
        WrongUse: its mode is another than the one under which it has published: periods and a chain mean different rows.
    """
    shape = shape_json(feed)
    known = session.read.feed_shapes().get(feed.name)
    recorded = session.read.computations(feed.name)
    for contract in (*(one.contract for one in feed.older), feed.contract):
        if (of := computation_hash(contract)) not in recorded:
            session.write.computation(feed.name, of, decisive_text(contract), at)
    if known == (feed.computation_hash, shape):
        return False
    if known is not None and (mode := shape_from_json(known[1]).mode) is not feed.mode and session.read.has_published(feed.name):
        raise WrongUse(
            f"{feed.name} has published as `mode: {mode}` and cannot go on as `mode: {feed.mode}`.",
            next_step=f"undo the edit in {feed.file}, or declare a new dataset.",
        )
    session.write.feed_version(
        feed=feed.name, source=feed.source, dataset=feed.dataset, mode=feed.mode.value,
        config_hash=feed.computation_hash, shape=shape, at=at,
    )  # fmt: skip
    return True


@dataclass(frozen=True, slots=True)
class CatalogueState:
    """What the published catalogue says of itself.

    Args:
        generation: of the ledger when it was built.
        store: the store folder that its views read.
        withheld: why, for each feed that it does not show.
    """

    generation: int
    store: Path
    withheld: dict[str, str]

    def shows_all(self, generation: int, store: Path) -> bool:
        """Whether it need not be built anew; a feed that is withheld is tried again each time."""
        return (self.generation, self.store) == (generation, store) and not self.withheld


def catalogue_state(path: Path, by: duckdb.DuckDBPyConnection | None = None) -> CatalogueState | None:
    """The published catalogue's state, or None where there is none that can be read.

    Args:
        path: the catalogue.
        by: a connection to ask by, which costs a tenth of opening one.
    """
    if not path.exists():
        return None
    with nullcontext(by) if by is not None else duckdb.connect() as connection:
        try:
            connection.execute(f"ATTACH {literal(str(path))} AS published (READ_ONLY)")
        except duckdb.Error:
            return None
        try:
            generation, store = connection.execute(
                "SELECT generation, store FROM published.valuestream._catalogue"
            ).fetchall()[0]
            withheld = connection.execute("SELECT feed, why FROM published.valuestream._withheld").fetchall()
        except (duckdb.Error, IndexError):
            return None
        finally:
            connection.execute("DETACH published")
    return CatalogueState(int(generation), Path(store), dict(withheld))


def known_state(session: LedgerSession, *, path: Path, store: Path) -> CatalogueState | None:
    """The published catalogue's state, beside a ledger that knows all that readers already see (L18).

    Raises:
        LedgerFailure: the catalogue is of a later generation of this store's ledger, which was lost or put back older.
    """
    state, generation = catalogue_state(path, session.connection), session.read.generation()
    if state is not None and state.store == store and state.generation > generation:
        raise LedgerFailure(
            f"the catalogue {path} shows more (generation {state.generation}) than the ledger knows ({generation}): "
            "the ledger was lost, or an older copy was put in its place.",
            next_step="put the newest backup back by `valuestream restore`; where there is none, run `valuestream rebuild`; "
            "if this older ledger is all there is, `valuestream recover --older-ledger` goes on from it.",
        )
    return state


def _build(
    session: LedgerSession,
    temporary: Path,
    exported: Sequence[ExportedTable],
    store: Path,
    generation: int,
    built_at: datetime,
) -> None:
    connection = session.connection
    files = _visible_files(session, store)
    shapes = {feed: [shape_from_json(one) for one in texts] for feed, texts in session.read.recorded_shapes().items()}
    published = {
        feed: [(of, shape_from_json(one)) for of, one in made] for feed, made in session.read.published_shapes().items()
    }
    home = connection.execute("SELECT current_database()").fetchall()[0][0]
    connection.execute(f"ATTACH {literal(str(temporary))} AS {_NEW} (STORAGE_VERSION '{_STORAGE_VERSION}')")
    try:
        # One transaction for many statements, because each one's end is forced to disk.
        with _transaction(connection):
            _copy_ledger_rows(connection, exported, store, generation, built_at)
            connection.execute(f"USE {_NEW}.main")
            for table in exported:
                connection.execute(f"CREATE VIEW {_NEW}.valuestream._{table.name} AS {raw_rows(table)}")
            _create_views(connection, "valuestream", PUBLIC_VIEWS)
        for feed, declared in shapes.items():
            shape, why = _shape_shown(feed, declared, published.get(feed, ()))
            if why is None:
                why = _show(connection, feed, shape, files.get(feed, []))
            if why is not None:
                _withhold(connection, feed, shape, why)
    finally:
        connection.execute(f'USE "{home}".main')
        connection.execute(f"DETACH {_NEW}")


def _shape_shown(feed: str, declared: Sequence[Shape], published: Sequence[tuple[str, Shape]]) -> tuple[Shape, str | None]:
    """The newest declared shape that shows all that is published, or the newest one and why none does (ruling 12, L5).

    After an edit readers go on with what they had until the stale files are made again; rows are never rounded, cut or hidden.
    """
    hidden = {shape: shape.hides_any(published) for shape in declared}
    for shape, fault in hidden.items():
        if fault is None:
            return shape, None
    why = f"{feed}: {hidden[declared[0]]}. Next: run `valuestream apply {feed} --recompute`, or undo the edit of `columns`."
    return declared[0], why


def _show(connection: duckdb.DuckDBPyConnection, feed: str, shape: Shape, files: Sequence[VisibleFile]) -> str | None:
    """Create a feed's views, which opens every file that they read; why that cannot be done, or None."""
    try:
        with _transaction(connection):
            _create_views(connection, shape.source, feed_views(feed, shape, files))
    except (duckdb.IOException, duckdb.InvalidInputException) as error:
        first = str(error).splitlines()[0]
        return (
            f"{feed}: a published file cannot be read ({first}). Next: put it back, or ask for the delivery again under a "
            f"higher revision; then run `valuestream apply {feed}`."
        )
    return None


def _withhold(connection: duckdb.DuckDBPyConnection, feed: str, shape: Shape, why: str) -> None:
    """A feed that cannot be shown whole is not shown in part: its views say why, and the other feeds are shown."""
    with _transaction(connection):
        _create_views(connection, shape.source, refusing_views(shape, why))
        connection.execute(f"INSERT INTO {_NEW}.valuestream._withheld VALUES (?, ?)", [feed, why])


def _create_views(connection: duckdb.DuckDBPyConnection, schema: str, views: Mapping[str, str]) -> None:
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_NEW}.{identifier(schema)}")
    for name, sql in views.items():
        connection.execute(f"CREATE VIEW {_NEW}.{identifier(schema)}.{identifier(name)} AS {sql}")


@contextmanager
def _transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _copy_ledger_rows(
    connection: duckdb.DuckDBPyConnection,
    exported: Sequence[ExportedTable],
    store: Path,
    generation: int,
    built_at: datetime,
) -> None:
    """Of the ledger's own rows what is visible, and those after the exported segments."""
    connection.execute(f"CREATE SCHEMA {_NEW}.valuestream")
    connection.execute(
        f"""CREATE TABLE {_NEW}.valuestream._catalogue AS
            SELECT {generation} AS generation, {literal(str(store))} AS store,
                   TIMESTAMP '{built_at:%Y-%m-%d %H:%M:%S}' AS built_at"""
    )
    connection.execute(f"CREATE TABLE {_NEW}.valuestream._withheld (feed VARCHAR, why VARCHAR)")
    connection.execute(f"CREATE TABLE {_NEW}.valuestream._visible AS {_VISIBLE}")
    for table in exported:
        connection.execute(
            f"""CREATE TABLE {_NEW}.valuestream._tail_{table.name} AS
                SELECT rowid AS _row, * FROM {table.name} WHERE rowid >= {table.tail_from}"""
        )


def _visible_files(session: LedgerSession, store: Path) -> dict[str, list[VisibleFile]]:
    """For each feed its visible files, in order."""
    answer: dict[str, list[VisibleFile]] = {}
    for feed, kind, ordinal, path, of in session.connection.execute(
        f"""SELECT v.feed, v.kind, v.ordinal, f.path, v.computation_hash
            FROM ({_VISIBLE}) v JOIN files f USING (publication_id) ORDER BY v.feed, v.ordinal, f.rowid"""
    ).fetchall():
        answer.setdefault(feed, []).append(VisibleFile(kind, ordinal, str(store / path), of))
    return answer


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
