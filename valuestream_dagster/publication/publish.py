"""The order that makes publishing safe: prepare aside, record in one transaction, close the run, show it.

One ``FeedRun`` at a time per feed. For each key it takes in what has arrived (seal, check, write Parquet aside, give it its
immutable name, read it back: ``take_in``), none of which anybody can see; then it opens the ledger for a slice of time and, one
transaction per delivery, decides *again* and records lineage, files, revision, digest, slice and receipt together (``record``;
M18, L10). Closing the ledger run makes its slices visible (L8, L9) and renames the catalogue (``run``). Decision 0001 says when
who sees what. Here is only how such a run is begun, and what is asked about runs from outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from valuestream_dagster.core.continuity import (
    Epoch,
    effective_epoch,
)
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.errors import NotApplied
from valuestream_dagster.intake.observe import Arrival, Look, NewsQuery, look
from valuestream_dagster.ledger.duck import LedgerSession
from valuestream_dagster.ledger.rows import (
    Publication,
)
from valuestream_dagster.publication.catalogue import record_feed_version
from valuestream_dagster.publication.facts import Facts, rows_before
from valuestream_dagster.publication.locks import run_lock, working
from valuestream_dagster.publication.means import Means
from valuestream_dagster.publication.outcomes import ArrivalOutcome
from valuestream_dagster.publication.owner import require_own
from valuestream_dagster.publication.pending import waiting_arrival
from valuestream_dagster.publication.quarantine import keep_evidence
from valuestream_dagster.publication.record import Recorder
from valuestream_dagster.publication.recover import Settled, settle_interrupted
from valuestream_dagster.publication.run import FeedRun
from valuestream_dagster.publication.take_in import Intake


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher(Means):
    """Begins runs on one feed, and answers about them."""

    @contextmanager
    def open_run(self, keys: Sequence[SequenceKey], *, dagster_run_id: str | None = None) -> Iterator[FeedRun]:
        """Begin to work on some keys: take the feed's lock, settle what an interrupted run left, look once.

        Raises:
            FeedBusy: another process runs the feed.
            NotApplied: a name at the landing place refuses the feed (ruling 11).
            StoreFailure, LedgerFailure: the landing place, the store or the ledger did not answer.
        """
        with run_lock(self.locks, self.feed.name, since=self.now()), working(self.locks):
            names = [key.text for key in keys]
            neighbours = [self.feed.sequence.predecessor(key).text for key in keys]
            seen = self._look(names)
            if names and seen.refusals:
                first = seen.refusals[0]
                raise NotApplied(f"{self.feed.name} is refused: {first.detail}.", next_step=first.next_step)
            with self.ledger.session() as session:
                waiting = [one for one in session.read.pending(self.feed.name, names) if one.stopped is None]
                run = FeedRun(
                    self,
                    seen,
                    dagster_run_id,
                    records=session.read.records(self.feed.name, [*names, *neighbours]),
                    existing=session.read.newest_publications(self.feed.name, names),
                    epoch=self._epoch(session, seen),
                    position=session.read.position(self.feed.name, required=self.feed.rule.required),
                    stored=[waiting_arrival(self.feed, one) for one in waiting],
                    earlier=rows_before(session, self.feed, keys),
                )
            try:
                yield run
            finally:
                run.abandon()

    def take_in_early(self, arrivals: Sequence[Arrival]) -> tuple[ArrivalOutcome, ...]:
        """Seal and check deliveries whose turn it is not, so that nothing done at the landing place can take them away.

        Needs no run lock: bytes are named by what they are, and what is bound is decided inside the ledger's transaction.

        Raises:
            NotApplied: the store is another ledger's.
            StoreFailure, LedgerFailure: the landing place, the store or the ledger did not answer.
        """
        names = [arrival.manifest.key for arrival in arrivals]
        asked = [text for key in names for text in (key.text, self.feed.sequence.predecessor(key).text)]
        with self.ledger.session() as session:
            require_own(session, self.store, self.now())
            facts = Facts(session.read.records(self.feed.name, asked), self.epoch_of(session, names), None)
        intake, outcomes = Intake(self, facts), []
        with working(self.locks):
            for arrival in arrivals:
                one = intake.take_in_early(arrival)
                if one.sealed is not None:
                    one.sealed.wait_durable()
                with self.ledger.session() as session:
                    facts.read_again(session, self.feed, [arrival.manifest.key])
                    with session.transaction():
                        record_feed_version(session, self.feed, self.now())
                        outcome = Recorder(self, facts, None).record_early(session, one)
                keep_evidence(self.store, one, outcome.told, self.now())
                outcomes.append(outcome)
            if outcomes:
                with self.ledger.session() as session:
                    self.publish_catalogue(session)
        return tuple(outcomes)

    def settle(self) -> tuple[Settled, ...]:
        """Settle and show what a run that died left; looks at no landing place.

        Raises:
            FeedBusy: the run has not died, or another one goes on.
        """
        with run_lock(self.locks, self.feed.name, since=self.now()):
            return self.settle_held()

    def settle_held(self) -> tuple[Settled, ...]:
        """The same by who has the run lock already."""
        with self.ledger.session() as session:
            return self._settle(session)

    def _settle(self, session: LedgerSession) -> tuple[Settled, ...]:
        settled = settle_interrupted(session, self.feed, self.store, self.now)
        if settled or not self.shown(session)[1]:
            self.publish_catalogue(session)
        return settled

    def _look(self, keys: Sequence[str]) -> Look:
        """What is new for the keys; where nothing is, what was received for them before and not found good."""
        seen = self.look(self._news_once_settled)
        idle = [key for key in keys if not seen.of_key(key)]
        if not idle:
            return seen
        with self.ledger.session() as session:
            # What lies in the store and may go is not asked of the landing place once more.
            stored = {one.key.text for one in session.read.pending(self.feed.name, idle) if one.stopped is None}
            again = session.read.manifests_of(self.feed.name, [key for key in idle if key not in stored])
        return self.look(self._news, [path for paths in again.values() for path in paths]) if again else seen

    def look(self, news: NewsQuery, again: Iterable[str] = ()) -> Look:
        """Look at the landing place once; see :func:`valuestream_dagster.intake.observe.look`."""
        return look(
            self.feed,
            self.landing,
            news,
            other_feeds=self.other_feeds,
            again=again,
            now=self.now(),
            limits=self.settings.limits,
        )

    def _news_once_settled(self, listing: Sequence[tuple[str, str]]) -> tuple[frozenset[str], frozenset[str]]:
        """The same, after settling what an interrupted run left: a delivery that it damaged is news again."""
        with self.ledger.session() as session:
            self._settle(session)
            return session.read.news(self.feed.name, listing)

    def _news(self, listing: Sequence[tuple[str, str]]) -> tuple[frozenset[str], frozenset[str]]:
        """The ledger's answer to which listed objects are news."""
        with self.ledger.session() as session:
            return session.read.news(self.feed.name, listing)

    def mark_reported(self, publications: Sequence[Publication]) -> None:
        """Keep that Dagster has a materialization of these."""
        if publications:
            with self.ledger.session() as session, session.transaction():
                session.write.reported(self.feed.name, [one.publication_id for one in publications], self.now())

    def unreported(self, limit: int) -> tuple[Publication, ...]:
        """Visible publications of which Dagster was not told: a run died between the two."""
        with self.ledger.session() as session:
            return session.read.unreported(self.feed.name, limit)

    def has_open_run(self) -> bool:
        """Whether a run was begun and never ended; under the run lock that is an interrupted one."""
        with self.ledger.session() as session:
            return bool(session.read.open_runs(self.feed.name))

    def left_behind(self) -> bool:
        """Whether something is left of a run that died: begun and never ended, or ended and never shown."""
        with self.ledger.session() as session:
            return bool(session.read.open_runs(self.feed.name)) or not self.shown(session)[1]

    def _epoch(self, session: LedgerSession, seen: Look) -> Epoch | None:
        return self.epoch_of(session, [arrival.manifest.key for arrival in seen.arrivals])

    def epoch_of(self, session: LedgerSession, keys: Sequence[SequenceKey]) -> Epoch | None:
        """The epoch from which these keys are judged, by what the ledger says and the lowest key there is."""
        known = session.read.lowest_seen(self.feed.name)
        lowest = min([*keys, *([known] if known else [])], key=lambda key: key.ordinal, default=None)
        return effective_epoch(self.feed.rule, session.read.epoch(self.feed.name), lowest)
