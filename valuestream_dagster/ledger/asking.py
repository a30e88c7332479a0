"""What all questions to the ledger share: how one is put, what is open, and the few answers that both sides rest on."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import duckdb

from valuestream_dagster.core.manifest import Digest, Kind, SealedFile
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.ledger.rows import Publication, PublishedFile

# A rejection is open until a delivery of the same key and at least its revision is found good after it, or a higher
# revision at any time; one whose key could not be read, until its manifest object is read again. A kind or revision that
# could not be read may be any.
OPEN_REJECTIONS = """
    SELECT r.manifest, r.key, r.ordinal, r.kind, r.revision, r.code, r.detail, r.rowid AS row
    FROM receipts r
    WHERE r.feed = $feed AND r.verdict = 'rejected'
      AND NOT EXISTS (
        SELECT 1 FROM receipts s WHERE s.feed = r.feed AND s.key = r.key AND (r.kind IS NULL OR s.kind = r.kind)
          AND s.verdict IN ('accepted', 'duplicate')
          AND (s.revision > r.revision OR (s.rowid > r.rowid AND s.revision >= coalesce(r.revision, 0))))
      AND NOT EXISTS (
        SELECT 1 FROM receipts s
        WHERE s.feed = r.feed AND s.manifest = r.manifest AND s.rowid > r.rowid AND s.verdict <> 'waiting')
    ORDER BY row"""

# A conflict or a hold is open until a higher revision of its identity is accepted, or a ruling decides for or against those
# bytes (ruling 4), or those bytes are published.
_OPEN = """
    SELECT e.kind, e.key, e.ordinal, e.revision, e.digest, e.why
    FROM slice_events e
    WHERE e.feed = $feed AND e.state = '{state}'
      AND NOT EXISTS (
        SELECT 1 FROM good_publications p
        WHERE p.feed = e.feed AND p.kind = e.kind AND p.key = e.key
          AND (p.revision > e.revision OR (p.revision = e.revision AND p.digest = e.digest)))
      AND NOT EXISTS (
        SELECT 1 FROM rulings r
        WHERE r.feed = e.feed AND r.kind = e.kind AND r.key = e.key AND r.revision = e.revision
          AND (r.digest = e.digest OR list_contains(r.settles, e.digest)))"""
OPEN_CONFLICTS = _OPEN.format(state="conflict")
OPEN_HOLDS = _OPEN.format(state="held")

# Sealed, valid, and neither applied nor settled otherwise: it waited for its turn, for a person, or for a ruling that lets it
# go. Few, whatever the history: only such deliveries have these events with a digest.
PENDING = """
    SELECT DISTINCT d.kind, d.key, d.ordinal, d.revision, d.digest, d.manifest, d.manifest_sha256
    FROM (SELECT feed, kind, key, revision, digest, min(row) AS row FROM good_slice_events
          WHERE feed = $feed AND state IN ('blocked', 'ready', 'held', 'conflict', 'interrupted')
            AND digest IS NOT NULL GROUP BY ALL) e
    JOIN (SELECT feed, kind, key, ordinal, revision, digest, arg_min(manifest, rowid) AS manifest,
                 arg_min(manifest_sha256, rowid) AS manifest_sha256
          FROM deliveries WHERE feed = $feed GROUP BY ALL) d USING (feed, kind, key, revision)
    LEFT JOIN (SELECT kind, key, revision, arg_max(ruling, rowid) AS ruling, arg_max(digest, rowid) AS chosen,
                      arg_max(coalesce(settles, []), rowid) AS settles
               FROM rulings WHERE feed = $feed GROUP BY kind, key, revision) r
      ON (r.kind, r.key, r.revision) = (d.kind, d.key, d.revision)
    LEFT JOIN (SELECT kind, key, arg_max(revision, row) AS revision, arg_max(digest, row) AS digest
               FROM good_publications WHERE feed = $feed GROUP BY kind, key) a
      ON (a.kind, a.key) = (d.kind, d.key)
    WHERE (a.revision IS NULL OR a.revision < d.revision
           OR (a.revision = d.revision AND a.digest <> d.digest AND r.ruling = 'release' AND r.chosen = d.digest))
      AND NOT EXISTS (
        SELECT 1 FROM receipts c
        WHERE c.feed = d.feed AND c.kind = d.kind AND c.key = d.key AND c.revision = d.revision AND c.digest = d.digest
          AND c.verdict = 'covered')
      AND coalesce(r.ruling <> 'retract' AND NOT list_contains(r.settles, d.digest), true)"""

# Slices of the newest epoch. What happened before the first was recorded (0, or the 1 that a declared baseline implies)
# belongs to the first.
IN_NEWEST_EPOCH = "greatest(epoch, 1) = coalesce((SELECT max(epoch) FROM epochs WHERE feed = $feed), 1)"

# Of good publications: the newest of each key and kind among runs that have ended, which is what readers see (L8, L9).
VISIBLE = """row IN (SELECT max(row) FROM good_publications
                    WHERE run_id IN (SELECT run_id FROM run_ends) GROUP BY feed, kind, key)"""

_PUBLICATION_COLUMNS = (
    "publication_id, feed, kind, key, ordinal, revision, digest, computation_hash, run_id, rows, bytes, totals, "
    "previous_key, position, epoch, published_at"
)


class Asking:
    """Puts questions by a connection to the ledger."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def _rows(self, sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
        rows = self._connection.execute(sql, parameters).fetchall()
        return [tuple(v.replace(tzinfo=UTC) if isinstance(v, datetime) else v for v in row) for row in rows]

    def _ever(self, feed: str) -> frozenset[str]:
        """Which states beyond success a feed's slices ever had, and ``ruled``: what never was needs no dear question."""
        return frozenset(
            row[0]
            for row in self._rows(
                """SELECT DISTINCT state FROM slice_events WHERE feed = $feed AND state <> 'succeeded'
                   UNION ALL SELECT DISTINCT 'ruled' FROM rulings WHERE feed = $feed""",
                feed=feed,
            )
        )

    def position(self, feed: str, *, required: bool) -> SequenceKey | None:
        """Last key of the contiguous prefix of succeeded slices, derived (C19); the highest, where gaps are allowed (C23)."""
        rows = self._rows(
            f"""WITH good AS (
                 SELECT key, ordinal, arg_max(requires_ordinal, row) AS requires FROM good_slice_events
                 WHERE feed = $feed AND state IN ('succeeded', 'waived') AND {IN_NEWEST_EPOCH}
                 GROUP BY key, ordinal),
               linked AS (SELECT *, lag(ordinal) OVER (ORDER BY ordinal) AS before FROM good)
               SELECT key, ordinal FROM linked
               WHERE NOT $required OR ordinal < coalesce(
                 (SELECT min(ordinal) FROM linked WHERE before IS NOT NULL AND requires IS DISTINCT FROM before),
                 9223372036854775807)
               ORDER BY ordinal DESC LIMIT 1""",
            feed=feed,
            required=required,
        )
        return SequenceKey(rows[0][0], rows[0][1]) if rows else None

    def _publications(self, where: str, limit: int = 1_000_000, **parameters: Any) -> tuple[Publication, ...]:
        rows = self._rows(
            f"SELECT {_PUBLICATION_COLUMNS} FROM good_publications WHERE {where} ORDER BY row LIMIT {limit:d}",
            **parameters,
        )
        ids = [row[0] for row in rows]
        files: dict[str, list[PublishedFile]] = defaultdict(list)
        lineage: dict[str, list[SealedFile]] = defaultdict(list)
        if ids:
            for row in self._rows(
                "SELECT * FROM files WHERE publication_id IN (SELECT unnest($ids)) ORDER BY rowid", ids=ids
            ):
                files[row[0]].append(PublishedFile(*row[1:]))
            for identity, role, path, uri, version, sha256, size in self._rows(
                "SELECT * FROM lineage WHERE publication_id IN (SELECT unnest($ids)) ORDER BY rowid", ids=ids
            ):
                lineage[identity].append(SealedFile(role, path, sha256, size, uri, version))
        return tuple(
            Publication(
                publication_id=row[0],
                feed=row[1],
                kind=Kind(row[2]),
                key=SequenceKey(row[3], row[4]),
                revision=row[5],
                digest=Digest(row[6]),
                computation_hash=row[7],
                run_id=row[8],
                rows=row[9],
                bytes=row[10],
                totals=tuple(json.loads(row[11]).items()),
                previous_key=row[12],
                position=row[13],
                epoch=row[14],
                published_at=row[15],
                files=tuple(files[row[0]]),
                lineage=tuple(lineage[row[0]]),
            )
            for row in rows
        )
