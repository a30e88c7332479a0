"""Asking the ledger what decisions rest on: every answer is derived from the newest rows. Nothing is written here.

Cost: each question scans the columns it needs of one or two tables, filtered by feed; 100,000 deliveries are a few
milliseconds. No answer grows with history, save where a list of visible files is what is asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from valuestream_dagster.core.continuity import Epoch, SliceState
from valuestream_dagster.core.decision import Applied, Bound, KeyHistory, Ruled, RulingWord, Verdict
from valuestream_dagster.core.manifest import Digest, Kind
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.ledger.asking import (
    IN_NEWEST_EPOCH,
    OPEN_CONFLICTS,
    OPEN_HOLDS,
    OPEN_REJECTIONS,
    PENDING,
    VISIBLE,
)
from valuestream_dagster.ledger.keeping import LedgerKeeping
from valuestream_dagster.ledger.reporting import LedgerReports
from valuestream_dagster.ledger.rows import KeyRecord, OpenRun, PendingDelivery, Publication, RunRow, StaleDelivery

_BEGINNING = -(2**62)


class LedgerReader(LedgerReports, LedgerKeeping):
    """All questions: those that decisions rest on, and, by its bases, those that people have and those about files."""

    # --- discovery -------------------------------------------------------------------------------------------------

    def news(self, feed: str, listing: Sequence[tuple[str, str]]) -> tuple[frozenset[str], frozenset[str]]:
        """Which listed objects are news (ruling: only a changed stamp is).

        Args:
            feed: whose landing place was listed.
            listing: (path, stamp) of every object there.

        Returns:
            The paths never looked at under their present stamp, and the manifests that named such a path before.
        """
        if not listing:
            return frozenset(), frozenset()
        # Two lists unnested side by side: registering an Arrow table would make DuckDB import pandas (a second).
        rows = self._rows(
            """WITH listed AS (SELECT unnest($paths) AS path, unnest($stamps) AS stamp),
                    seen AS (
                 SELECT path, arg_max(stamp, rowid) AS stamp, arg_max(manifest, rowid) AS manifest
                 FROM objects_seen WHERE feed = $feed GROUP BY path)
               SELECT listed.path, seen.manifest FROM listed LEFT JOIN seen USING (path)
               WHERE seen.stamp IS DISTINCT FROM listed.stamp""",
            feed=feed,
            paths=[path for path, _ in listing],
            stamps=[stamp for _, stamp in listing],
        )
        return frozenset(row[0] for row in rows), frozenset(row[1] for row in rows if row[1] is not None)

    def manifests_of(self, feed: str, keys: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """For each key, the manifests that were received for it and did not end as accepted or duplicate.

        Those whose bytes are sealed and wait for their turn are not among them: they are taken up from the store.
        """
        rows = self._rows(
            """SELECT key, manifest FROM receipts WHERE feed = $feed AND key IN (SELECT unnest($keys))
               GROUP BY key, manifest
               HAVING arg_max(verdict, rowid) NOT IN ('accepted', 'duplicate', 'superseded')
                  AND NOT (arg_max(verdict, rowid) = 'waiting' AND arg_max(digest IS NOT NULL, rowid))
               ORDER BY min(rowid)""",
            feed=feed,
            keys=list(keys),
        )
        found: dict[str, list[str]] = defaultdict(list)
        for key, manifest in rows:
            found[key].append(manifest)
        return {key: tuple(manifests) for key, manifests in found.items()}

    def last_receipts(self, feed: str, manifests: Iterable[str]) -> dict[str, tuple[Verdict, str]]:
        """The newest verdict and detail of each named manifest."""
        rows = self._rows(
            """SELECT manifest, arg_max(verdict, rowid), arg_max(detail, rowid) FROM receipts
               WHERE feed = $feed AND manifest IN (SELECT unnest($manifests)) GROUP BY manifest""",
            feed=feed,
            manifests=list(manifests),
        )
        return {row[0]: (Verdict(row[1]), row[2]) for row in rows}

    # --- deciding --------------------------------------------------------------------------------------------------

    def epoch(self, feed: str) -> Epoch | None:
        """The newest epoch of a feed, or None before the first acceptance."""
        rows = self._rows(
            """SELECT e.epoch, e.baseline_key, e.baseline_ordinal,
                      EXISTS (SELECT 1 FROM slice_events s WHERE s.feed = e.feed AND s.epoch = e.epoch
                              AND s.key = e.baseline_key AND s.kind = 'full' AND s.state = 'succeeded')
               FROM epochs e WHERE e.feed = $feed ORDER BY e.rowid DESC LIMIT 1""",
            feed=feed,
        )
        return Epoch(rows[0][0], SequenceKey(rows[0][1], rows[0][2]), full=rows[0][3]) if rows else None

    def records(self, feed: str, keys: Iterable[str]) -> dict[str, KeyRecord]:
        """All that is known of the named keys: state in the newest epoch, and what is bound and applied per kind."""
        asked: dict[str, Any] = {"feed": feed, "keys": list(dict.fromkeys(keys))}
        bound: dict[tuple[str, str], list[Bound]] = defaultdict(list)
        for key, kind, revision, digest in self._rows(
            """SELECT key, kind, revision, digest FROM deliveries
               WHERE feed = $feed AND key IN (SELECT unnest($keys)) ORDER BY rowid""",
            **asked,
        ):
            bound[key, kind].append(Bound(revision, Digest(digest)))
        applied = {
            (row[0], row[1]): Applied(row[2], Digest(row[3]), row[4], row[5], row[6])
            for row in self._rows(
                """SELECT key, kind, arg_max(revision, row), arg_max(digest, row), arg_max(publication_id, row),
                          arg_max(computation_hash, row), arg_max(rows, row)
                   FROM good_publications WHERE feed = $feed AND key IN (SELECT unnest($keys)) GROUP BY key, kind""",
                **asked,
            )
        }
        ever = self._ever(feed)
        conflicts = self._open(OPEN_CONFLICTS, asked) if "conflict" in ever else {}
        held = self._open(OPEN_HOLDS, asked) if "held" in ever else {}
        rulings = self._rulings(asked) if "ruled" in ever else {}
        states = self._states(asked, {key for key, _ in conflicts})
        return {
            key: KeyRecord(
                *states.get(key, (SliceState.MISSING, "")),
                {
                    kind: KeyHistory(
                        tuple(bound.get((key, kind), ())),
                        applied.get((key, kind)),
                        tuple(conflicts.get((key, kind), ())),
                        tuple(rulings.get((key, kind), ())),
                        tuple(held.get((key, kind), ())),
                    )
                    for kind in Kind
                    if (key, kind) in bound or (key, kind) in applied
                },
            )
            for key in asked["keys"]
        }

    def _open(self, sql: str, asked: dict[str, Any]) -> dict[tuple[str, str], list[Bound]]:
        """What waits for a person, of the asked keys: each content once, in order."""
        found: dict[tuple[str, str], list[Bound]] = defaultdict(list)
        for kind, key, _, revision, digest, _ in self._rows(sql + " AND e.key IN (SELECT unnest($keys))", **asked):
            if (one := Bound(revision, Digest(digest))) not in found[key, kind]:
                found[key, kind].append(one)
        return found

    def _rulings(self, asked: dict[str, Any]) -> dict[tuple[str, str], list[Ruled]]:
        rulings: dict[tuple[str, str], list[Ruled]] = defaultdict(list)
        for key, kind, word, revision, digest, settles in self._rows(
            """SELECT key, kind, ruling, revision, digest, coalesce(settles, []) FROM rulings
               WHERE feed = $feed AND key IN (SELECT unnest($keys)) AND kind IS NOT NULL AND revision IS NOT NULL
               ORDER BY rowid""",
            **asked,
        ):
            chosen = Digest(digest) if digest else None
            rulings[key, kind].append(Ruled(RulingWord(word), revision, chosen, tuple(Digest(one) for one in settles)))
        return rulings

    def _states(self, asked: dict[str, Any], in_conflict: set[str]) -> dict[str, tuple[SliceState, str]]:
        """State of each asked key: conflict beats success, success beats a later failure (L25), failure a rejection.

        A link that was retracted (its publication has no rows until a higher revision) counts as settled: it succeeded.
        """
        states: dict[str, tuple[SliceState, str]] = {}
        for key, code in self._rows(
            f"SELECT key, any_value(code) FROM ({OPEN_REJECTIONS}) WHERE key IN (SELECT unnest($keys)) GROUP BY key",
            **asked,
        ):
            states[key] = (SliceState.REJECTED, code)
        for key, state, why in self._rows(
            f"""SELECT key,
                      CASE WHEN bool_or(state = 'succeeded') THEN 'succeeded' ELSE arg_max(state, row) END,
                      coalesce(arg_max(why, row), '')
               FROM good_slice_events
               WHERE feed = $feed AND key IN (SELECT unnest($keys)) AND state <> 'conflict' AND {IN_NEWEST_EPOCH}
               GROUP BY key""",
            **asked,
        ):
            states[key] = (SliceState(state), why)
        for key in in_conflict:
            states[key] = (SliceState.CONFLICT, "conflict")
        return states

    def pending(self, feed: str, keys: Iterable[str] | None = None) -> tuple[PendingDelivery, ...]:
        """What is sealed and valid and not applied yet, in order; of these keys, or of all.

        Costs one pass over the feed's slice events and a few rows of the rest: only what is open is looked up.
        """
        if not self._ever(feed) & {"blocked", "ready", "held", "conflict", "interrupted"}:
            return ()
        asked = None if keys is None else list(keys)
        rows = self._rows(
            f"""WITH pending AS ({PENDING})
                SELECT p.*, c.digest IS NOT NULL, h.digest IS NOT NULL
                FROM pending p
                LEFT JOIN (SELECT DISTINCT kind, key, revision, digest FROM ({OPEN_HOLDS})) h USING (kind, key, revision, digest)
                LEFT JOIN (SELECT kind, key, revision, any_value(digest) AS digest FROM ({OPEN_CONFLICTS})
                           GROUP BY kind, key, revision) c USING (kind, key, revision)
                WHERE $keys IS NULL OR p.key IN (SELECT unnest($keys)) ORDER BY p.ordinal, p.revision""",
            feed=feed,
            keys=asked,
        )
        return tuple(
            PendingDelivery(
                Kind(row[0]), SequenceKey(row[1], row[2]), row[3], Digest(row[4]), row[5], row[6],
                SliceState.CONFLICT if row[7] else SliceState.HELD if row[8] else None,
            )
            for row in rows
        )  # fmt: skip

    def rows_before(self, feed: str, kind: Kind, ordinals: Iterable[int]) -> dict[int, int]:
        """For each place in the order the rows of the nearest applied delivery of that kind before it, where there is one."""
        return {
            row[0]: row[1]
            for row in self._rows(
                """WITH asked AS (SELECT unnest($ordinals) AS ordinal),
                     applied AS (SELECT ordinal AS place, arg_max(rows, row) AS rows FROM good_publications
                                 WHERE feed = $feed AND kind = $kind GROUP BY ordinal)
                   SELECT asked.ordinal, arg_max(applied.rows, applied.place)
                   FROM asked JOIN applied ON applied.place < asked.ordinal GROUP BY asked.ordinal""",
                feed=feed,
                kind=kind.value,
                ordinals=list(ordinals),
            )
        }

    def deltas_after(self, feed: str, ordinal: int) -> tuple[tuple[SequenceKey, int, str, str], ...]:
        """The applied deltas after a place in the order: key, revision, digest and publication of each, in order."""
        return tuple(
            (SequenceKey(row[0], row[1]), row[2], row[3], row[4])
            for row in self._rows(
                """SELECT key, ordinal, arg_max(revision, row), arg_max(digest, row), arg_max(publication_id, row)
                   FROM good_publications WHERE feed = $feed AND kind = 'delta' AND ordinal > $ordinal
                   GROUP BY key, ordinal ORDER BY ordinal""",
                feed=feed,
                ordinal=ordinal,
            )
        )

    def lowest_seen(self, feed: str) -> SequenceKey | None:
        """The lowest key of which a delivery was ever found good."""
        rows = self._rows("SELECT key, ordinal FROM deliveries WHERE feed = $feed ORDER BY ordinal LIMIT 1", feed=feed)
        return SequenceKey(rows[0][0], rows[0][1]) if rows else None

    def fence(self, feed: str) -> int:
        """The highest fencing number handed out for a feed; 0 before the first."""
        return int(self._rows("SELECT coalesce(max(fence), 0) FROM runs WHERE feed = $feed", feed=feed)[0][0])

    # --- runs ------------------------------------------------------------------------------------------------------

    def open_runs(self, feed: str) -> tuple[RunRow, ...]:
        """Runs that take deliveries in, were begun and never ended, oldest first (L13)."""
        return tuple(
            RunRow(row[0], feed, row[1], row[2], row[3], "running", row[4], row[5])
            for row in self._rows(
                """SELECT run_id, fence, holder, started_at, dagster_run_id, purpose FROM runs
                   WHERE feed = $feed AND purpose IS DISTINCT FROM 'recompute'
                     AND run_id NOT IN (SELECT run_id FROM run_ends WHERE feed = $feed)
                   ORDER BY rowid""",
                feed=feed,
            )
        )

    def open_recomputations(self, feed: str) -> tuple[OpenRun, ...]:
        """Runs that make published deliveries again and are not shown yet, at work or paused, oldest first."""
        return tuple(
            OpenRun(*row)
            for row in self._rows(
                """SELECT run_id, computation_hash FROM runs
                   WHERE feed = $feed AND purpose = 'recompute'
                     AND run_id NOT IN (SELECT run_id FROM run_ends WHERE feed = $feed) ORDER BY rowid""",
                feed=feed,
            )
        )

    # --- recomputing -----------------------------------------------------------------------------------------------

    def stale(
        self,
        feed: str,
        computations: Sequence[tuple[int | None, str]],
        work_hash: str,
        *,
        key: str | None = None,
        force: bool = False,
    ) -> tuple[StaleDelivery, ...]:
        """What readers see of a feed that another computation made, in order; what is made again already is not among them.

        Retracted revisions have nothing to be made of. Costs one pass over the feed's publications.

        Args:
            feed: which feed.
            computations: from which ordinal on each computation hash holds, as the feed is declared now; None from the beginning.
            work_hash: names all of them together.
            key: only this key.
            force: also what the same computation made, save what an unfinished recomputation has made.
        """
        hashes = [of for _, of in computations]
        made_by = self._rows("SELECT DISTINCT computation_hash FROM publications WHERE feed = $feed", feed=feed)
        if not force and len(hashes) == 1 and {row[0] for row in made_by} <= set(hashes):
            return ()
        return tuple(
            StaleDelivery(Kind(row[0]), SequenceKey(row[1], row[2]), row[3], Digest(row[4]), row[5], row[6], row[7])
            for row in self._rows(
                f"""WITH declared AS (SELECT unnest($since) AS since, unnest($hashes) AS hash),
                    wanted AS (
                      SELECT ordinal, max_by(hash, since) AS hash
                      FROM (SELECT DISTINCT ordinal FROM good_publications WHERE feed = $feed) o
                      JOIN declared d ON d.since <= o.ordinal GROUP BY ordinal),
                    unfinished AS (
                      SELECT run_id FROM runs WHERE feed = $feed AND purpose = 'recompute' AND computation_hash = $work
                        AND run_id NOT IN (SELECT run_id FROM run_ends WHERE feed = $feed)),
                    newest AS (
                      SELECT kind, key, max_by(computation_hash, row) AS hash, max_by(run_id, row) AS run_id
                      FROM good_publications WHERE feed = $feed GROUP BY kind, key),
                    retracted AS (
                      SELECT kind, key, revision FROM rulings WHERE feed = $feed AND revision IS NOT NULL
                      GROUP BY kind, key, revision HAVING arg_max(ruling, rowid) = 'retract')
                    SELECT p.kind, p.key, p.ordinal, p.revision, p.digest, p.publication_id, p.computation_hash,
                           coalesce((SELECT sum(l.bytes) FROM lineage l WHERE l.publication_id = p.publication_id), 0)::BIGINT
                    FROM good_publications p JOIN newest n USING (kind, key) JOIN wanted w USING (ordinal)
                    WHERE p.feed = $feed AND {VISIBLE} AND ($key IS NULL OR p.key = $key)
                      AND n.run_id NOT IN (FROM unfinished)
                      AND ($force OR p.computation_hash <> w.hash)
                      AND (p.kind, p.key, p.revision) NOT IN (SELECT (kind, key, revision) FROM retracted)
                    ORDER BY p.ordinal, p.kind DESC""",
                feed=feed,
                since=[_BEGINNING if since is None else since for since, _ in computations],
                hashes=hashes,
                work=work_hash,
                key=key,
                force=force,
            )
        )

    def computations(self, feed: str) -> dict[str, str]:
        """What each known computation hash of a feed stands for."""
        return {
            row[0]: row[1]
            for row in self._rows("SELECT computation_hash, decisive FROM computations WHERE feed = $feed", feed=feed)
        }

    def publications_of_run(self, run_id: str) -> tuple[Publication, ...]:
        """What a run recorded, in order, with files."""
        return self._publications("run_id = $run_id", run_id=run_id)

    def manifest_of(self, publication: Publication) -> tuple[str, str] | None:
        """The manifest by which a publication's bytes were bound: its path, and its sha256."""
        rows = self._rows(
            """SELECT manifest, manifest_sha256 FROM deliveries WHERE feed = $feed AND kind = $kind AND key = $key
                 AND revision = $revision AND digest = $digest ORDER BY rowid DESC LIMIT 1""",
            feed=publication.feed,
            kind=publication.kind.value,
            key=publication.key.text,
            revision=publication.revision,
            digest=publication.digest.hex,
        )
        return (rows[0][0], rows[0][1]) if rows else None

    def unreported(self, feed: str, limit: int) -> tuple[Publication, ...]:
        """Visible publications of which Dagster was not told yet, in order of recording, with files."""
        return self._publications(
            """feed = $feed AND publication_id NOT IN (SELECT publication_id FROM reported WHERE feed = $feed)
               AND run_id IN (SELECT run_id FROM run_ends WHERE feed = $feed)""",
            limit=limit,
            feed=feed,
        )

    def publication(self, publication_id: str) -> Publication | None:
        """One publication with its files and lineage."""
        found = self._publications("publication_id = $publication_id", publication_id=publication_id)
        return found[0] if found else None

    def newest_publications(self, feed: str, keys: Iterable[str]) -> dict[str, tuple[Publication, ...]]:
        """For each key its visible publications (one per kind), newest revision each."""
        found = self._publications(
            """row IN (SELECT max(row) FROM good_publications
                         WHERE feed = $feed AND key IN (SELECT unnest($keys))
                           AND run_id IN (SELECT run_id FROM run_ends WHERE feed = $feed)
                         GROUP BY kind, key)""",
            feed=feed,
            keys=list(keys),
        )
        by_key: dict[str, list[Publication]] = defaultdict(list)
        for publication in found:
            by_key[publication.key.text].append(publication)
        return {key: tuple(publications) for key, publications in by_key.items()}

    def feed_shapes(self) -> dict[str, tuple[str, str]]:
        """The newest configuration hash and shape of every feed that was ever recorded."""
        return {
            row[0]: (row[1], row[2])
            for row in self._rows(
                "SELECT feed, arg_max(config_hash, rowid), arg_max(shape, rowid) FROM feed_versions GROUP BY feed"
            )
        }

    def recorded_shapes(self) -> dict[str, tuple[str, ...]]:
        """Every shape under which a feed was ever declared, the newest first."""
        found: dict[str, list[str]] = defaultdict(list)
        for feed, shape in self._rows("SELECT feed, shape FROM feed_versions GROUP BY feed, shape ORDER BY max(rowid) DESC"):
            found[feed].append(shape)
        return {feed: tuple(shapes) for feed, shapes in found.items()}

    def generation(self) -> int:
        """A number that grows with every change that the catalogue must show; costs the same at any size."""
        return int(
            self._rows(
                """SELECT (SELECT count(*) FROM run_ends) + (SELECT count(*) FROM receipts)
                        + (SELECT count(*) FROM rulings) + (SELECT count(*) FROM feed_versions)
                        + (SELECT count(*) FROM attempts) + (SELECT count(*) FROM voided)"""
            )[0][0]
        )

    def published_shapes(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """For each feed the shapes under which the files that readers see were made, each with their computation hash."""
        found: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for feed, of, shape in self._rows(
            f"""SELECT feed, config_hash, shape
                FROM (SELECT feed, config_hash, arg_max(shape, rowid) AS shape FROM feed_versions GROUP BY ALL)
                WHERE (feed, config_hash) IN (SELECT (feed, computation_hash) FROM good_publications
                                              WHERE {VISIBLE} AND publication_id IN (SELECT publication_id FROM files))
                ORDER BY ALL"""
        ):
            found[feed].append((of, shape))
        return {feed: tuple(shapes) for feed, shapes in found.items()}

    def has_published(self, feed: str) -> bool:
        """Whether anything of a feed was ever published and is good."""
        return bool(self._rows("SELECT 1 FROM good_publications WHERE feed = $feed LIMIT 1", feed=feed))
