"""What the ledger says of the store's files: which of them readers see, which they saw, and which inputs are still needed.

Asked by ``vacuum`` and ``verify`` only; each answer is as long as what it is about.
"""

from __future__ import annotations

from datetime import datetime

from valuestream_dagster.core.manifest import Digest, Kind
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.ledger.asking import VISIBLE, Asking
from valuestream_dagster.ledger.rows import BoundDelivery, RecordedFile

_UNFINISHED = "run_id NOT IN (SELECT run_id FROM run_ends)"


class LedgerKeeping(Asking):
    """Questions about files."""

    def ledger_id(self) -> str | None:
        """The ledger's own name, or None before it was given one."""
        rows = self._rows("SELECT ledger_id FROM ledger_identity ORDER BY rowid LIMIT 1")
        return str(rows[0][0]) if rows else None

    def published_keys(self, feed: str) -> tuple[SequenceKey, ...]:
        """Every key of which readers have something, in order."""
        return tuple(
            SequenceKey(row[0], row[1])
            for row in self._rows(
                f"SELECT DISTINCT key, ordinal FROM good_publications WHERE feed = $feed AND {VISIBLE} ORDER BY ordinal", feed=feed
            )
        )

    def visible_files(self, feed: str | None = None) -> tuple[RecordedFile, ...]:
        """The published files that readers see, of one feed or of all."""
        return tuple(
            RecordedFile(*row)
            for row in self._rows(
                f"""SELECT p.feed, p.key, f.path, f.sha256, f.bytes
                    FROM good_publications p JOIN files f USING (publication_id)
                    WHERE {VISIBLE} AND ($feed IS NULL OR p.feed = $feed) ORDER BY p.feed, p.ordinal, f.path""",
                feed=feed,
            )
        )

    def visible_inputs(self, feed: str | None = None) -> tuple[tuple[str, str, str, int], ...]:
        """The sealed inputs of what readers see: feed, key, sha256 and bytes of each."""
        return tuple(
            (row[0], row[1], row[2], row[3])
            for row in self._rows(
                f"""SELECT DISTINCT p.feed, p.key, l.sha256, l.bytes
                    FROM good_publications p JOIN lineage l USING (publication_id)
                    WHERE {VISIBLE} AND ($feed IS NULL OR p.feed = $feed) ORDER BY ALL""",
                feed=feed,
            )
        )

    def unfinished_files(self) -> frozenset[str]:
        """Published files of runs that have not ended."""
        rows = self._rows(f"SELECT path FROM files JOIN publications USING (publication_id) WHERE {_UNFINISHED}")
        return frozenset(row[0] for row in rows)

    def replaced_files(self) -> dict[str, tuple[str, datetime]]:
        """Published files that readers saw once: publication, and since when none of them sees it."""
        return {
            row[0]: (row[1], row[2])
            for row in self._rows(
                f"""WITH shown AS (
                      SELECT p.*, e.ended_at FROM good_publications p JOIN run_ends e USING (run_id)),
                    since AS (
                      SELECT publication_id,
                             min(ended_at) OVER (PARTITION BY feed, kind, key ORDER BY row
                                                 ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS since
                      FROM shown)
                    SELECT f.path, any_value(f.publication_id), max(coalesce(s.since, s2.ended_at))
                    FROM files f JOIN since s USING (publication_id) JOIN shown s2 USING (publication_id)
                    WHERE f.publication_id NOT IN (SELECT publication_id FROM good_publications WHERE {VISIBLE})
                    GROUP BY f.path"""
            )
        }

    def voided_files(self) -> dict[str, str]:
        """Published files that were found damaged, or made void: their publication."""
        rows = self._rows("SELECT path, publication_id FROM files WHERE publication_id IN (SELECT publication_id FROM voided)")
        return {row[0]: row[1] for row in rows}

    def needed_lineage(self) -> frozenset[str]:
        """sha256 of every sealed input and manifest of what is visible or of a run that has not ended."""
        rows = self._rows(
            f"""WITH needed AS (
                  SELECT * FROM good_publications WHERE {VISIBLE}
                  UNION ALL SELECT * FROM good_publications WHERE {_UNFINISHED})
                SELECT l.sha256 FROM lineage l WHERE l.publication_id IN (SELECT publication_id FROM needed)
                UNION SELECT d.manifest_sha256 FROM deliveries d JOIN needed USING (feed, kind, key, revision, digest)"""
        )
        return frozenset(row[0] for row in rows)

    def needed_deliveries(self) -> tuple[tuple[str, BoundDelivery], ...]:
        """Deliveries that may still be taken up from the store, with their feed: what is visible, and all of a newer revision.

        What waits for its turn, for a person, or for a ruling is among the newer ones and those of the same revision.
        """
        return tuple(
            (row[0], BoundDelivery(Kind(row[1]), SequenceKey(row[2], row[3]), row[4], Digest(row[5]), *row[6:]))
            for row in self._rows(
                f"""WITH seen AS (SELECT feed, kind, key, revision FROM good_publications WHERE {VISIBLE})
                    SELECT d.feed, d.kind, d.key, d.ordinal, d.revision, d.digest, d.manifest, d.manifest_sha256, d.sealed_at
                    FROM deliveries d LEFT JOIN seen s USING (feed, kind, key)
                    WHERE s.revision IS NULL OR d.revision >= s.revision"""
            )
        )

    def manifests_heard_of(self) -> frozenset[tuple[str, str]]:
        """(feed, sha256) of every manifest that was ever received or by which bytes were bound."""
        rows = self._rows(
            """SELECT DISTINCT feed, manifest_sha256 FROM receipts WHERE manifest_sha256 IS NOT NULL
               UNION SELECT DISTINCT feed, manifest_sha256 FROM deliveries"""
        )
        return frozenset((row[0], row[1]) for row in rows)

    def slices_failed(self) -> frozenset[tuple[str, str, str, int]]:
        """(feed, kind, key, revision) of every slice on which our own work ever failed."""
        rows = self._rows("SELECT DISTINCT feed, kind, key, revision FROM slice_events WHERE state = 'failed'")
        return frozenset((row[0], row[1], row[2], row[3]) for row in rows)
