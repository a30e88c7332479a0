"""Asking the ledger what people are shown: how a feed stands, what arrived, what was published. Nothing is decided by it."""

from __future__ import annotations

import json
from datetime import datetime

from valuestream_dagster.core.decision import Ruled, RulingWord, Verdict
from valuestream_dagster.core.manifest import Digest, Kind
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.ledger.asking import IN_NEWEST_EPOCH, OPEN_CONFLICTS, OPEN_HOLDS, OPEN_REJECTIONS, Asking
from valuestream_dagster.ledger.rows import BoundDelivery, FeedSummary, OpenRejection, Publication, Receipt, Ruling


class LedgerReports(Asking):
    """Questions that people have."""

    def summary(self, feed: str, *, required: bool) -> FeedSummary:
        """What ``status`` shows of a feed."""
        seen = self._rows(
            """SELECT arg_max(key, ordinal), max(ordinal), arg_min(key, ordinal), min(ordinal)
               FROM receipts WHERE feed = $feed AND key IS NOT NULL AND verdict NOT IN ('waiting', 'rejected')""",
            feed=feed,
        )[0]
        applied = self._rows(
            "SELECT count(DISTINCT (kind, key)) FROM good_publications WHERE feed = $feed", feed=feed
        )[0][0]
        failed = self._rows(
            f"""SELECT key FROM (
                 SELECT key, any_value(ordinal) AS ordinal,
                   CASE WHEN bool_or(state = 'succeeded') THEN 'succeeded' ELSE arg_max(state, row) END AS state
                 FROM good_slice_events
                 WHERE feed = $feed AND state <> 'conflict' AND {IN_NEWEST_EPOCH} GROUP BY kind, key)
               WHERE state IN ('failed', 'interrupted') GROUP BY key ORDER BY any_value(ordinal)""",
            feed=feed,
        )
        ever = self._ever(feed)
        conflicts, held = (
            self._rows(f"SELECT key FROM ({sql}) GROUP BY key ORDER BY any_value(ordinal)", feed=feed) if state in ever else []
            for state, sql in (("conflict", OPEN_CONFLICTS), ("held", OPEN_HOLDS))
        )
        return FeedSummary(
            applied=int(applied),
            position=self.position(feed, required=required),
            highest_seen=SequenceKey(seen[0], seen[1]) if seen[0] is not None else None,
            lowest_seen=SequenceKey(seen[2], seen[3]) if seen[2] is not None else None,
            conflicts=tuple(row[0] for row in conflicts),
            held=tuple(row[0] for row in held),
            failed=tuple(row[0] for row in failed),
            rejections=self.open_rejections(feed),
        )

    def gaps(self, feed: str, step: int, limit: int) -> tuple[tuple[int, int], ...]:
        """Neighbouring applied places in the order that are more than ``step`` apart, lowest first."""
        return tuple(
            (row[0], row[1])
            for row in self._rows(
                """SELECT before, ordinal FROM (
                     SELECT ordinal, lag(ordinal) OVER (ORDER BY ordinal) AS before
                     FROM (SELECT DISTINCT ordinal FROM good_publications WHERE feed = $feed))
                   WHERE ordinal - before > $step ORDER BY ordinal LIMIT $limit""",
                feed=feed,
                step=step,
                limit=limit,
            )
        )

    def open_rejections(self, feed: str) -> tuple[OpenRejection, ...]:
        """Rejected and not made good since, oldest first."""
        return tuple(
            OpenRejection(
                row[0],
                SequenceKey(row[1], row[2]) if row[1] is not None else None,
                Kind(row[3]) if row[3] else None,
                row[4],
                row[5],
                row[6],
            )
            for row in self._rows(OPEN_REJECTIONS, feed=feed)
        )

    def deliveries(self, feed: str, key: str) -> tuple[BoundDelivery, ...]:
        """Everything of one key that was ever found valid, oldest first."""
        return tuple(
            BoundDelivery(Kind(row[0]), SequenceKey(row[1], row[2]), row[3], Digest(row[4]), *row[5:])
            for row in self._rows(
                """SELECT kind, key, ordinal, revision, digest, manifest, manifest_sha256, sealed_at FROM deliveries
                   WHERE feed = $feed AND key = $key ORDER BY rowid""",
                feed=feed,
                key=key,
            )
        )

    def rulings(self, feed: str, key: str) -> tuple[Ruling, ...]:
        """What people ruled about one key, oldest first."""
        return tuple(
            Ruling(
                feed,
                SequenceKey(row[0], row[1]),
                Kind(row[2]),
                Ruled(RulingWord(row[3]), row[4], Digest(row[5]) if row[5] else None, tuple(Digest(one) for one in row[6])),
                *row[7:],
            )
            for row in self._rows(
                """SELECT r.key, d.ordinal, r.kind, r.ruling, r.revision, r.digest, coalesce(r.settles, []), r."by", r.why,
                          r.ruled_at
                   FROM rulings r JOIN (SELECT any_value(ordinal) AS ordinal FROM deliveries WHERE feed = $feed AND key = $key) d
                     ON r.kind IS NOT NULL AND r.revision IS NOT NULL
                   WHERE r.feed = $feed AND r.key = $key ORDER BY r.rowid""",
                feed=feed,
                key=key,
            )
        )

    def receipts(self, feed: str | None, limit: int, key: str | None = None) -> tuple[Receipt, ...]:
        """The newest receipts, oldest first; of one feed or of all, of one key or of all."""
        rows = self._rows(
            """SELECT receipt_id, received_at, feed, verdict, code, detail, next, manifest, kind, key, ordinal, revision,
                      digest, warnings, findings, run_id, manifest_sha256
               FROM (SELECT *, rowid AS row FROM receipts WHERE ($feed IS NULL OR feed = $feed) AND ($key IS NULL OR key = $key)
                     ORDER BY row DESC LIMIT $limit) ORDER BY row""",
            feed=feed,
            key=key,
            limit=limit,
        )
        return tuple(
            Receipt(
                receipt_id=row[0],
                received_at=row[1],
                feed=row[2],
                verdict=Verdict(row[3]),
                code=row[4],
                detail=row[5],
                next_step=row[6],
                manifest=row[7],
                kind=Kind(row[8]) if row[8] else None,
                key=SequenceKey(row[9], row[10]) if row[9] is not None else None,
                revision=row[11],
                digest=row[12],
                warnings=tuple(row[13]),
                findings=tuple(json.loads(row[14])),
                run_id=row[15],
                manifest_sha256=row[16],
            )
            for row in rows
        )

    def history(self, feed: str, key: str | None) -> tuple[tuple[Publication, datetime | None], ...]:
        """Every visible or once visible publication of a feed (or key) with the time when a newer one replaced it."""
        publications = self._publications(
            """feed = $feed AND ($key IS NULL OR key = $key)
               AND run_id IN (SELECT run_id FROM run_ends WHERE feed = $feed)""",
            feed=feed,
            key=key,
        )
        replaced: dict[tuple[Kind, str], datetime] = {}
        answer: list[tuple[Publication, datetime | None]] = []
        for publication in reversed(publications):
            slot = (publication.kind, publication.key.text)
            answer.append((publication, replaced.get(slot)))
            replaced[slot] = publication.published_at
        return tuple(reversed(answer))
