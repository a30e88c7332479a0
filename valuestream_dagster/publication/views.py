"""The SQL of the catalogue's views: what the ledger's rows show, and a feed's rows out of its published files. Pure text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from valuestream_dagster.core.continuity import Mode
from valuestream_dagster.core.rows import Column
from valuestream_dagster.feeds.feed import Shape
from valuestream_dagster.feeds.versions import Shown
from valuestream_dagster.intake.csv_sql import identifier, literal
from valuestream_dagster.ledger.segments import ExportedTable

# What `valuestream.<name>` shows, over the raw rows `valuestream._<table>`.
PUBLIC_VIEWS = {
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
                FROM valuestream._files f, valuestream._catalogue c
                WHERE f.path NOT IN (SELECT path FROM valuestream._removals)""",
    "lineage": """SELECT publication_id, object_uri, object_version, sha256, bytes, role, path
                  FROM valuestream._lineage""",
    "runs": """SELECT r.run_id, r.feed, coalesce(e.status, 'running') AS status, r.started_at, e.ended_at,
                 r.computation_hash, r.dagster_run_id, r.holder, r.fence, coalesce(r.purpose, 'deliveries') AS purpose
               FROM valuestream._runs r LEFT JOIN (SELECT run_id, status, ended_at FROM valuestream._run_ends) e
                 USING (run_id)""",
    "rulings": """SELECT feed, key, ruling, "by", why, ruled_at, kind, revision, digest, settles FROM valuestream._rulings""",
    "removals": """SELECT path, bytes, why, publication_id, removed_at FROM valuestream._removals ORDER BY _row""",
    "attempts": """SELECT feed, key, revision, destination, attempt, state, code, retry, effect, locator, digest,
                     happened_at FROM valuestream._attempts""",
}



def raw_rows(table: ExportedTable) -> str:
    """All rows of a ledger table: those that were exported, and those after them."""
    tail = f"SELECT * FROM valuestream._tail_{table.name}"
    if not table.segments:
        return tail
    return f"SELECT * FROM {_parquet([str(path) for path in table.segments])} UNION ALL BY NAME {tail}"


@dataclass(frozen=True, slots=True)
class VisibleFile:
    """A published file that readers see; ``path`` is absolute, ``made_by`` its computation hash."""

    kind: str
    ordinal: int
    path: str
    made_by: str = ""


def feed_views(feed: str, shape: Shape, files: Sequence[VisibleFile]) -> dict[str, str]:
    """The feed's views by name: its current rows, and all rows with where each is from."""
    current = _chain(shape, files) if shape.mode is Mode.CHAIN else _rows(shape, files, provenance=False)
    return {
        shape.dataset: current,
        f"{shape.dataset}__all": f"""
            SELECT {_names(shape.columns)}, r._key, r._kind, CAST(v.revision AS BIGINT) AS _revision, r._op
            FROM ({_rows(shape, files, provenance=True)}) r
            JOIN (SELECT kind AS _kind, key AS _key, revision FROM valuestream._visible WHERE feed = {literal(feed)}) v
              USING (_key, _kind)""",
    }


def refusing_views(shape: Shape, why: str) -> dict[str, str]:
    """The same views for a feed that cannot be shown whole: reading them raises, and says why."""
    condition = f"error({literal(why)}) IS NULL"
    return {
        name: _rows(shape, [], provenance=provenance, condition=condition)
        for name, provenance in ((shape.dataset, False), (f"{shape.dataset}__all", True))
    }


def _chain(shape: Shape, files: Sequence[VisibleFile]) -> str:
    """Newest full and the deltas after it: the last word on each key wins, deletes before upserts (ruling 8)."""
    baseline = max((file.ordinal for file in files if file.kind == "full"), default=None)
    fulls = [file for file in files if file.kind == "full" and file.ordinal == baseline]
    deltas = [file for file in files if file.kind == "delta" and (baseline is None or file.ordinal > baseline)]
    full_rows = _rows(shape, fulls, provenance=True)
    if not deltas:
        return f"SELECT {_names(shape.columns)} FROM ({full_rows}) WHERE _op <> 'D'"
    keys = ", ".join(identifier(column) for column in shape.key)
    return f"""WITH changes AS ({_rows(shape, deltas, provenance=True)}),
          latest AS (SELECT {keys}, max(_seq) AS _latest FROM changes GROUP BY ALL)
        SELECT {_names(shape.columns)} FROM ({full_rows}) f ANTI JOIN latest USING ({keys}) WHERE f._op <> 'D'
        UNION ALL BY NAME
        SELECT {_names(shape.columns)} FROM changes JOIN latest USING ({keys})
        WHERE changes._seq = latest._latest AND changes._op <> 'D'"""


def _rows(shape: Shape, files: Sequence[VisibleFile], *, provenance: bool, condition: str = "false") -> str:
    """The rows of some files, cast to the declared columns; no rows where there is no file, or what the condition says."""
    extra = [("_key", "VARCHAR"), ("_kind", "VARCHAR"), ("_seq", "BIGINT"), ("_op", "VARCHAR")] if provenance else []
    wanted = [(column.name, column.type) for column in shape.columns] + extra
    if not files:
        return "SELECT " + ", ".join(f"CAST(NULL AS {kind}) AS {identifier(name)}" for name, kind in wanted) + f" WHERE {condition}"
    older = dict(shape.older)
    groups: dict[str | None, list[str]] = {}
    for file in files:
        groups.setdefault(file.made_by if file.made_by in older else None, []).append(file.path)
    return " UNION ALL BY NAME ".join(
        _of_newest(wanted, paths) if of is None else _of_older(older[of], wanted, paths) for of, paths in groups.items()
    )


def _of_newest(wanted: Sequence[tuple[str, str]], paths: Sequence[str]) -> str:
    casts = ", ".join(f"CAST({identifier(name)} AS {kind}) AS {identifier(name)}" for name, kind in wanted)
    # A column that no file has yet is NULL: the second branch is empty and only adds names.
    names = ", ".join(f"NULL AS {identifier(name)}" for name, _ in wanted)
    return f"SELECT {casts} FROM (FROM {_parquet(paths)} UNION ALL BY NAME SELECT {names} WHERE false)"


def _of_older(shown: Sequence[Shown], wanted: Sequence[tuple[str, str]], paths: Sequence[str]) -> str:
    """Rows of an earlier version of the columns, under the newest names (ruling 12)."""
    filled = {one.name: _source(one) for one in shown}
    casts = ", ".join(f"CAST({filled.get(name, identifier(name))} AS {kind}) AS {identifier(name)}" for name, kind in wanted)
    return f"SELECT {casts} FROM {_parquet(paths)}"


def _source(shown: Shown) -> str:
    if shown.old is not None:
        return identifier(shown.old)
    return "NULL" if shown.default is None else literal(shown.default)


def _parquet(paths: Sequence[str]) -> str:
    return f"read_parquet([{', '.join(literal(path) for path in paths)}], union_by_name=true)"


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(identifier(column.name) for column in columns)
