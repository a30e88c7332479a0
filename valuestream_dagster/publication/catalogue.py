"""The catalogue: a small read-only DuckDB file of views that readers attach, replaced whole by one rename.

Built from the ledger while its lock is held, so that a later catalogue never shows less than an earlier one. It names
explicit file lists with absolute paths, is stored in a form that DuckDB 1.3 and 1.4 open too, and has mode 0444 because a
reader that opened it for writing would block the others (decision 0003).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from uuid import uuid4

import duckdb

from valuestream_dagster.core.continuity import Mode
from valuestream_dagster.core.rows import Column
from valuestream_dagster.errors import StoreFailure
from valuestream_dagster.feeds.feed import Feed, Shape, shape_from_json, shape_json
from valuestream_dagster.ledger.duck import LedgerSession
from valuestream_dagster.ledger.segments import ExportedTable, export_segments

_STORAGE_VERSION = "v1.0.0"
# The name of the file being built, within the ledger's connection. No declared source can bear it (they begin with a letter
# or digit), and every statement names it, because a source may well be called `ledger`.
_NEW = "_valuestream_new"

# What `valuestream.<name>` shows, over the raw rows `valuestream._<table>`.
_PUBLIC_VIEWS = {
    "feeds": """SELECT feed, arg_max(source, _row) AS source, arg_max(dataset, _row) AS dataset,
                  arg_max(mode, _row) AS mode, arg_max(config_hash, _row) AS config_hash,
                  max(recorded_at) AS recorded_at
                FROM valuestream._feed_versions GROUP BY feed""",
    "receipts": """SELECT received_at, feed, kind, key, revision, digest, verdict, code, detail, warnings, run_id,
                     manifest, "next", findings, manifest_sha256, receipt_id
                   FROM valuestream._receipts ORDER BY _row""",
    "slices": """SELECT feed, epoch, kind, key, any_value(ordinal) AS ordinal, arg_max(requires, _row) AS requires,
                   arg_max(state, _row) AS state, arg_max(run_id, _row) AS run_id,
                   arg_max(revision, _row) AS revision, max(happened_at) AS happened_at
                 FROM valuestream._slice_events GROUP BY feed, epoch, kind, key""",
    "epochs": """SELECT feed, epoch, baseline_key, anchor, opened_at, run_id FROM valuestream._epochs ORDER BY _row""",
    "publications": """SELECT p.publication_id, p.feed, p.kind, p.key, p.revision, p.digest, p.computation_hash,
                         p.run_id, p.rows, p.published_at, v.publication_id IS NOT NULL AS visible, p.epoch,
                         p.previous_key, p.position, p.bytes, p.totals
                       FROM valuestream._publications p
                       LEFT JOIN (SELECT publication_id FROM valuestream._visible) v USING (publication_id)""",
    "files": """SELECT f.publication_id, c.store || '/' || f.path AS path, f.sha256, f.bytes, f.rows
                FROM valuestream._files f, valuestream._catalogue c""",
    "lineage": """SELECT publication_id, object_uri, object_version, sha256, bytes, role, path
                  FROM valuestream._lineage""",
    "runs": """SELECT r.run_id, r.feed, coalesce(e.status, 'running') AS status, r.started_at, e.ended_at,
                 r.computation_hash, r.dagster_run_id, r.holder, r.fence
               FROM valuestream._runs r LEFT JOIN (SELECT run_id, status, ended_at FROM valuestream._run_ends) e
                 USING (run_id)""",
    "rulings": """SELECT feed, key, ruling, "by", why, ruled_at, kind, revision, digest FROM valuestream._rulings""",
    "attempts": """SELECT feed, key, revision, destination, attempt, state, code, retry, effect, locator, digest,
                     happened_at FROM valuestream._attempts""",
}

_VISIBLE = """
    SELECT p.feed, p.kind, p.key, p.ordinal, p.revision, p.epoch, p.publication_id
    FROM good_publications p
    WHERE p.row IN (SELECT max(row) FROM good_publications
                    WHERE run_id IN (SELECT run_id FROM run_ends) GROUP BY feed, kind, key)"""


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
    """
    path.parent.mkdir(parents=True, exist_ok=True)
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
    """Keep a feed's declaration by its hash when it is new or changed (L26); whether it was. Inside a transaction."""
    shape = shape_json(feed)
    if session.read.feed_shapes().get(feed.name) == (feed.computation_hash, shape):
        return False
    session.write.feed_version(
        feed=feed.name, source=feed.source, dataset=feed.dataset, mode=feed.mode.value,
        config_hash=feed.computation_hash, shape=shape, at=at,
    )  # fmt: skip
    return True


def catalogue_state(path: Path, by: duckdb.DuckDBPyConnection | None = None) -> tuple[int, Path] | None:
    """Generation and store folder of the published catalogue, or None where it is to be built anew (none, or a feed is withheld).

    Args:
        path: the catalogue.
        by: a connection to ask by, which costs a tenth of opening one.
    """
    if not path.exists():
        return None
    with nullcontext(by) if by is not None else duckdb.connect() as connection:
        try:
            connection.execute(f"ATTACH {_text(path)} AS published (READ_ONLY)")
        except duckdb.Error:
            return None
        try:
            generation, store = connection.execute(
                "SELECT generation, store FROM published.valuestream._catalogue WHERE complete"
            ).fetchall()[0]
        except (duckdb.Error, IndexError):
            return None
        finally:
            connection.execute("DETACH published")
    return int(generation), Path(store)


def _build(
    session: LedgerSession,
    temporary: Path,
    exported: Sequence[ExportedTable],
    store: Path,
    generation: int,
    built_at: datetime,
) -> None:
    connection = session.connection
    files = _visible_files(session)
    shapes = {feed: shape_from_json(shape) for feed, (_, shape) in session.read.feed_shapes().items()}
    home = connection.execute("SELECT current_database()").fetchall()[0][0]
    connection.execute(f"ATTACH {_text(temporary)} AS {_NEW} (STORAGE_VERSION '{_STORAGE_VERSION}')")
    try:
        # One transaction for many statements, because each one's end is forced to disk.
        with _transaction(connection):
            _create_ledger_views(connection, exported, store, generation, built_at)
        connection.execute(f"USE {_NEW}.main")
        for feed, shape in shapes.items():
            try:
                with _transaction(connection):
                    _create_feed_views(connection, feed, shape, files.get(feed, []), store)
            except (duckdb.IOException, duckdb.InvalidInputException) as error:
                with _transaction(connection):
                    _create_views_that_refuse(connection, feed, shape, error)
                    connection.execute(f"UPDATE {_NEW}.valuestream._catalogue SET complete = false")
    finally:
        connection.execute(f'USE "{home}".main')
        connection.execute(f"DETACH {_NEW}")


@contextmanager
def _transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _create_ledger_views(
    connection: duckdb.DuckDBPyConnection,
    exported: Sequence[ExportedTable],
    store: Path,
    generation: int,
    built_at: datetime,
) -> None:
    """The ledger's own rows: what is visible, the exported segments with the rows after them, and the public views of these."""
    connection.execute(f"CREATE SCHEMA {_NEW}.valuestream")
    connection.execute(
        f"""CREATE TABLE {_NEW}.valuestream._catalogue AS
            SELECT {generation} AS generation, {_text(store)} AS store,
                   TIMESTAMP '{built_at:%Y-%m-%d %H:%M:%S}' AS built_at, true AS complete"""
    )
    connection.execute(f"CREATE TABLE {_NEW}.valuestream._visible AS {_VISIBLE}")
    for table in exported:
        connection.execute(
            f"""CREATE TABLE {_NEW}.valuestream._tail_{table.name} AS
                SELECT rowid AS _row, * FROM {table.name} WHERE rowid >= {table.tail_from}"""
        )
    home = connection.execute("SELECT current_database()").fetchall()[0][0]
    connection.execute(f"USE {_NEW}.main")
    for table in exported:
        connection.execute(f"CREATE VIEW {_NEW}.valuestream._{table.name} AS {_raw_rows(table)}")
    for name, sql in _PUBLIC_VIEWS.items():
        connection.execute(f"CREATE VIEW {_NEW}.valuestream.{name} AS {sql}")
    connection.execute(f'USE "{home}".main')


def _visible_files(session: LedgerSession) -> dict[str, list[tuple[str, int, int, str]]]:
    """For each feed its visible files: (kind, ordinal, epoch, path), in order."""
    answer: dict[str, list[tuple[str, int, int, str]]] = {}
    for feed, kind, ordinal, epoch, path in session.connection.execute(
        f"""SELECT v.feed, v.kind, v.ordinal, v.epoch, f.path
            FROM ({_VISIBLE}) v JOIN files f USING (publication_id) ORDER BY v.feed, v.ordinal, f.rowid"""
    ).fetchall():
        answer.setdefault(feed, []).append((kind, ordinal, epoch, path))
    return answer


def _raw_rows(table: ExportedTable) -> str:
    tail = f"SELECT * FROM valuestream._tail_{table.name}"
    if not table.segments:
        return tail
    return f"SELECT * FROM {_parquet([str(path) for path in table.segments])} UNION ALL BY NAME {tail}"


def _create_feed_views(
    connection: duckdb.DuckDBPyConnection,
    feed: str,
    shape: Shape,
    files: Sequence[tuple[str, int, int, str]],
    store: Path,
) -> None:
    schema, dataset = feed.split("/", 1)
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_NEW}.{_name(schema)}")
    everything = [str(store / path) for _, _, _, path in files]
    current = (
        _chain(shape, files, store) if shape.mode is Mode.CHAIN else _rows(shape.columns, everything, provenance=False)
    )
    connection.execute(f"CREATE VIEW {_NEW}.{_name(schema)}.{_name(dataset)} AS {current}")
    connection.execute(
        f"""CREATE VIEW {_NEW}.{_name(schema)}.{_name(dataset + "__all")} AS
            SELECT {_names(shape.columns)}, r._key, r._kind, CAST(v.revision AS BIGINT) AS _revision, r._op
            FROM ({_rows(shape.columns, everything, provenance=True)}) r
            JOIN (SELECT kind AS _kind, key AS _key, revision FROM valuestream._visible WHERE feed = {_text(feed)}) v
              USING (_key, _kind)"""
    )


def _create_views_that_refuse(
    connection: duckdb.DuckDBPyConnection, feed: str, shape: Shape, error: duckdb.Error
) -> None:
    """A feed one of whose files is lost or damaged is not shown in part; it says what is wrong, and the other feeds are shown."""
    schema, dataset = feed.split("/", 1)
    first = str(error).splitlines()[0]
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_NEW}.{_name(schema)}")
    refusal = f"{feed}: a published file cannot be read ({first}). Restore it, then run: valuestream apply {feed}"
    for name, provenance in ((dataset, False), (f"{dataset}__all", True)):
        rows = _rows(shape.columns, [], provenance=provenance, condition=f"error({_text(refusal)}) IS NULL")
        connection.execute(f"CREATE VIEW {_NEW}.{_name(schema)}.{_name(name)} AS {rows}")


def _chain(shape: Shape, files: Sequence[tuple[str, int, int, str]], store: Path) -> str:
    """Newest full and the deltas after it: the last word on each key wins, deletes before upserts (ruling 8)."""
    baseline = max((ordinal for kind, ordinal, _, _ in files if kind == "full"), default=None)
    fulls = [str(store / path) for kind, ordinal, _, path in files if kind == "full" and ordinal == baseline]
    deltas = [
        str(store / path) for kind, ordinal, _, path in files if kind == "delta" and (baseline is None or ordinal > baseline)
    ]
    full_rows = _rows(shape.columns, fulls, provenance=True)
    if not deltas:
        return f"SELECT {_names(shape.columns)} FROM ({full_rows}) WHERE _op <> 'D'"
    keys = ", ".join(_name(column) for column in shape.key)
    return f"""WITH changes AS ({_rows(shape.columns, deltas, provenance=True)}),
          latest AS (SELECT {keys}, max(_seq) AS _latest FROM changes GROUP BY ALL)
        SELECT {_names(shape.columns)} FROM ({full_rows}) f ANTI JOIN latest USING ({keys}) WHERE f._op <> 'D'
        UNION ALL BY NAME
        SELECT {_names(shape.columns)} FROM changes JOIN latest USING ({keys})
        WHERE changes._seq = latest._latest AND changes._op <> 'D'"""


def _rows(columns: Sequence[Column], paths: Sequence[str], *, provenance: bool, condition: str = "false") -> str:
    """The rows of some files, cast to the declared columns; no rows where there is no file, or what the condition says."""
    extra = [("_key", "VARCHAR"), ("_kind", "VARCHAR"), ("_seq", "BIGINT"), ("_op", "VARCHAR")] if provenance else []
    wanted = [(column.name, column.type) for column in columns] + extra
    if not paths:
        return "SELECT " + ", ".join(f"CAST(NULL AS {kind}) AS {_name(name)}" for name, kind in wanted) + f" WHERE {condition}"
    casts = ", ".join(f"CAST({_name(name)} AS {kind}) AS {_name(name)}" for name, kind in wanted)
    # A column that no file has yet is NULL: the second branch is empty and only adds names.
    names = ", ".join(f"NULL AS {_name(name)}" for name, _ in wanted)
    return f"SELECT {casts} FROM (FROM {_parquet(paths)} UNION ALL BY NAME SELECT {names} WHERE false)"


def _parquet(paths: Sequence[str]) -> str:
    return f"read_parquet([{', '.join(_text(path) for path in paths)}], union_by_name=true)"


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(_name(column.name) for column in columns)


def _name(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


def _text(value: str | Path) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
