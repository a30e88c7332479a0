"""The order that makes publishing safe: prepare aside, record in one transaction, close the run, show it.

One ``FeedRun`` at a time per feed. For each key it takes in what has arrived (seal, check, write Parquet aside, give it its
immutable name, read it back), none of which anybody can see; then it opens the ledger for a slice of time and, one
transaction per delivery, decides *again* and records lineage, files, revision, digest, slice and receipt together (M18, L10).
Closing the ledger run makes its slices visible (L8, L9) and renames the catalogue. Decision 0001 says when who sees what.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from uuid import uuid4

import duckdb

from valuestream_dagster.core.continuity import (
    Blocked,
    Covered,
    Epoch,
    Judgement,
    Mode,
    Needs,
    SliceState,
    effective_epoch,
)
from valuestream_dagster.core.decision import (
    Accept,
    Applied,
    Bound,
    Conflict,
    Decision,
    Duplicate,
    Identity,
    Incomplete,
    Invalid,
    KeyHistory,
    Observation,
    Superseded,
    Valid,
    Verdict,
    decide,
)
from valuestream_dagster.core.finding import Finding
from valuestream_dagster.core.manifest import Digest, Kind
from valuestream_dagster.core.rows import MeasuredRows, RowsRefused, RowStamp
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.errors import Broken, FenceLost, ObjectChanged, ObjectMissing, StoreFailure, ValueStreamError
from valuestream_dagster.feeds.feed import Feed
from valuestream_dagster.feeds.settings import Settings
from valuestream_dagster.intake.completion import Resolved
from valuestream_dagster.intake.observe import Arrival, Look, look
from valuestream_dagster.intake.payload import PayloadFile
from valuestream_dagster.intake.seal import Sealed, keep_manifest, seal
from valuestream_dagster.ledger.duck import DuckLedger, LedgerSession
from valuestream_dagster.ledger.rows import (
    KeyRecord,
    Publication,
    PublishedFile,
    Receipt,
    RunRow,
    SeenObject,
    SliceEvent,
)
from valuestream_dagster.publication.catalogue import catalogue_state, publish_catalogue, record_feed_version
from valuestream_dagster.publication.locks import holder_name, run_lock
from valuestream_dagster.publication.parquet import StagedFile, check_only, publish_file, read_back, stage
from valuestream_dagster.publication.receipts import Told, receipt_of, tell
from valuestream_dagster.publication.recover import settle_interrupted
from valuestream_dagster.stores.base import LandingPlace
from valuestream_dagster.stores.local import LocalStore

# Decisions after which a run may be green.
_CALM = (Accept, Duplicate, Superseded, Covered)
FORMAT_VERSION = 1
BATCH_KEYS = 64


@dataclass(frozen=True, slots=True)
class PreparedArrival:
    """One arrival, taken in: what it turned out to be, and its file if it was worth writing one.

    ``provisional`` is what will become of it unless the ledger says otherwise; ``failure`` says what of our own went wrong.
    """

    arrival: Arrival
    observation: Observation
    provisional: Decision | None
    sealed: Sealed | None = None
    file: PublishedFile | None = None
    measured: MeasuredRows | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class PreparedKey:
    """All that arrived for one key, taken in, newest revision first; ``failure`` where our own work went wrong."""

    key: SequenceKey
    arrivals: tuple[PreparedArrival, ...]
    existing: Publication | None

    @property
    def worth_an_output(self) -> bool:
        """Whether, as decided now, the key has a publication afterwards and no trouble alone made it run."""
        accepted = any(isinstance(one.provisional, Accept) for one in self.arrivals)
        calm = all(one.failure is None and isinstance(one.provisional, _CALM) for one in self.arrivals)
        return accepted or (calm and self.existing is not None)

    @property
    def data_version(self) -> str | None:
        """The data version that the key will have if all goes as decided now."""
        for prepared in self.arrivals:
            if isinstance(prepared.provisional, Accept) and isinstance(prepared.observation, Valid):
                return f"r{prepared.observation.identity.revision}-{prepared.observation.digest.short}"
        return self.existing.data_version if self.existing else None


@dataclass(frozen=True, slots=True)
class ArrivalOutcome:
    """What became of one arrival."""

    manifest: str
    key: SequenceKey
    kind: Kind
    revision: int
    told: Told
    warnings: tuple[str, ...] = ()
    failed: bool = False


@dataclass(frozen=True, slots=True)
class KeyOutcome:
    """What became of one key: each arrival's outcome, and the publication that the key has now (None: it has none)."""

    key: SequenceKey
    outcomes: tuple[ArrivalOutcome, ...]
    publication: Publication | None
    changed: bool
    run_id: str | None

    @property
    def trouble(self) -> tuple[ArrivalOutcome, ...]:
        """The outcomes that a person must know of."""
        return tuple(outcome for outcome in self.outcomes if not outcome.told.ok)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    """What publishing one feed needs; every effect comes in as an argument.

    Args:
        feed: the feed.
        settings: the deployment's.
        ledger: the record of truth.
        landing: where deliveries arrive.
        store: our own write-once folder.
        other_feeds: (source, dataset) of the other declared feeds.
        now: the clock.
    """

    feed: Feed
    settings: Settings
    ledger: DuckLedger
    landing: LandingPlace
    store: LocalStore
    other_feeds: Collection[tuple[str, str]]
    now: Callable[[], datetime]

    @property
    def locks(self) -> Path:
        """Folder of the run locks."""
        return self.settings.ledger.parent / "locks"

    @property
    def segments(self) -> Path:
        """Folder of the ledger's exported rows."""
        return self.settings.ledger.parent / "segments"

    def publish_catalogue(self, session: LedgerSession) -> int:
        """Show what the ledger says is visible."""
        return publish_catalogue(
            session, path=self.settings.catalog, store=self.settings.store, segments=self.segments, now=self.now
        )

    @contextmanager
    def open_run(self, keys: Sequence[SequenceKey], *, dagster_run_id: str | None = None) -> Iterator[FeedRun]:
        """Begin to work on some keys: take the feed's lock, settle what an interrupted run left, look once.

        Raises:
            FeedBusy: another process runs the feed.
            StoreFailure, LedgerFailure: the landing place, the store or the ledger did not answer.
        """
        with run_lock(self.locks, self.feed.name, since=self.now()):
            names = [key.text for key in keys]
            neighbours = [self.feed.sequence.predecessor(key).text for key in keys]
            self._settle()
            seen = self._look(names)
            with self.ledger.session() as session:
                run = FeedRun(
                    self,
                    seen,
                    dagster_run_id,
                    records=session.read.records(self.feed.name, [*names, *neighbours]),
                    existing=session.read.newest_publications(self.feed.name, names),
                    epoch=self._epoch(session, seen),
                    position=session.read.position(self.feed.name, required=self.feed.rule.required),
                )
            try:
                yield run
            finally:
                run.abandon()

    def _settle(self) -> None:
        """Settle what an interrupted run left, before looking: a delivery that it damaged is news again.

        Also shows what a run closed and had no time to show.
        """
        with self.ledger.session() as session:
            settled = settle_interrupted(session, self.feed, self.store, self.now)
            if settled or not self._is_shown(session):
                self.publish_catalogue(session)

    def _is_shown(self, session: LedgerSession) -> bool:
        """Whether the catalogue shows all that the ledger has to show."""
        generation = session.read.generation()
        return generation == 0 or catalogue_state(self.settings.catalog) == (generation, self.settings.store)

    def _look(self, keys: Sequence[str]) -> Look:
        """What is new for the keys; where nothing is, what was received for them before and not found good."""
        seen = self._look_once(())
        idle = [key for key in keys if not seen.of_key(key)]
        if not idle:
            return seen
        with self.ledger.session() as session:
            again = session.read.manifests_of(self.feed.name, idle)
        return self._look_once([path for paths in again.values() for path in paths]) if again else seen

    def _look_once(self, again: Iterable[str]) -> Look:
        return look(
            self.feed,
            self.landing,
            self.news,
            other_feeds=self.other_feeds,
            again=again,
            now=self.now(),
            limits=self.settings.limits,
        )

    def news(self, listing: Sequence[tuple[str, str]]) -> tuple[frozenset[str], frozenset[str]]:
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
            return bool(session.read.open_runs(self.feed.name)) or not self._is_shown(session)

    def _epoch(self, session: LedgerSession, seen: Look) -> Epoch | None:
        keys = [arrival.manifest.key for arrival in seen.arrivals]
        known = session.read.lowest_seen(self.feed.name)
        lowest = min([*keys, *([known] if known else [])], key=lambda key: key.ordinal, default=None)
        return effective_epoch(self.feed.rule, session.read.epoch(self.feed.name), lowest)


@dataclass(slots=True)
class _Facts:
    """What a run knows of the ledger, brought up to date by what it records, and what it assumes of the batch at hand.

    Assumed is what preparing decided: that a key will be applied, with which revision, and that a full opens an epoch. It goes
    when the batch is recorded, where everything is decided again. ``local`` are keys that came to nothing in this run; the
    ledger's word goes before it.
    """

    records: dict[str, KeyRecord]
    epoch: Epoch | None
    position: SequenceKey | None
    # The newest epoch that the ledger really holds; `epoch` may be one that only the declared baseline implies.
    recorded: Epoch | None = None
    local: dict[str, SliceState] = field(default_factory=dict)
    assumed: dict[tuple[Kind, str], KeyHistory] = field(default_factory=dict)
    assumed_epoch: Epoch | None = None

    @property
    def epoch_ahead(self) -> Epoch | None:
        """The epoch from which to judge, counting what is assumed."""
        return self.assumed_epoch or self.epoch

    def state_of(self, key: SequenceKey) -> SliceState:
        """State of a key, those of the batch at hand taken as succeeded."""
        if any((kind, key.text) in self.assumed for kind in Kind):
            return SliceState.SUCCEEDED
        known = self.records.get(key.text, KeyRecord()).state
        return known if known is not SliceState.MISSING else self.local.get(key.text, SliceState.MISSING)

    def history(self, kind: Kind, key: SequenceKey) -> KeyHistory:
        """What is known of one (kind, key), counting what is assumed."""
        return self.assumed.get((kind, key.text)) or self.records.get(key.text, KeyRecord()).history(kind)

    def assume(self, identity: Identity, digest: Digest, computation_hash: str, opens: Epoch | None) -> None:
        """Count a delivery of the batch at hand as applied."""
        history = self.history(identity.kind, identity.key)
        self.assumed[identity.kind, identity.key.text] = replace(
            history,
            bound=(*history.bound, Bound(identity.revision, digest)),
            applied=Applied(identity.revision, digest, "", computation_hash),
        )
        self.assumed_epoch = opens or self.assumed_epoch

    def assume_nothing(self) -> None:
        """From here on only what is recorded counts."""
        self.assumed.clear()
        self.assumed_epoch = None

    def remember(self, kind: Kind, key: SequenceKey, history: KeyHistory, state: SliceState | None) -> None:
        """Take in what was just recorded."""
        before = self.records.get(key.text, KeyRecord())
        self.records[key.text] = replace(
            before, state=state or before.state, histories={**before.histories, kind: history}
        )


class FeedRun:
    """One invocation's work on one feed, under the feed's lock: ``prepare`` keys, ``record`` them, ``close`` the ledger run.

    Several ledger runs may follow each other in it; each becomes visible as a whole when it is closed.
    """

    def __init__(
        self,
        publisher: Publisher,
        seen: Look,
        dagster_run_id: str | None,
        *,
        records: dict[str, KeyRecord],
        existing: dict[str, tuple[Publication, ...]],
        epoch: Epoch | None,
        position: SequenceKey | None,
    ) -> None:
        self._publisher = publisher
        self._feed = publisher.feed
        self.look = seen
        self._dagster_run_id = dagster_run_id
        self._facts = _Facts(records, epoch, position)
        self._existing = existing
        self._run: RunRow | None = None
        self._next_id = self._new_id()
        self._recorded = self._named = 0
        self._good = self._bad = 0
        # Files that have their name and of which nothing was recorded yet.
        self._loose: set[str] = set()

    def judge(self, key: SequenceKey) -> Judgement:
        """What the predecessor rule says of a key of which nothing is here."""
        kind = Kind.DELTA if self._feed.mode is Mode.CHAIN else self._feed.default_kind
        return self._feed.rule.judge(kind, key, self._facts.epoch_ahead, self._facts.state_of)

    # --- the whole way, for many keys --------------------------------------------------------------------------------

    def publish(
        self, keys: Sequence[SequenceKey], *, on_progress: Callable[[int, int], None] | None = None
    ) -> Iterator[tuple[KeyOutcome, ...]]:
        """Publish keys in their own order; yields the outcomes of each ledger run once they are visible (decision 0001).

        Args:
            keys: in any order.
            on_progress: told (keys done, keys in all) after each batch.
        """
        ordered = sorted(keys, key=lambda key: key.ordinal)
        limit = self._publisher.settings.limits.keys_per_ledger_run
        done = 0
        for start in range(0, len(ordered), limit):
            outcomes: list[KeyOutcome] = []
            for batch in self._batches(ordered[start : start + limit]):
                outcomes += self.record(batch)
                done += len(batch)
                if on_progress:
                    on_progress(done, len(ordered))
            self.close()
            yield tuple(outcomes)

    def _batches(self, keys: Sequence[SequenceKey]) -> Iterator[list[PreparedKey]]:
        """Prepared keys, gathered for one opening of the ledger (30 ms) rather than one each."""
        batch: list[PreparedKey] = []
        began = time.monotonic()
        for key in keys:
            batch.append(self.prepare(key))
            slice_over = time.monotonic() - began >= self._publisher.settings.limits.ledger_slice_seconds
            if slice_over or len(batch) >= BATCH_KEYS:
                yield batch
                batch, began = [], time.monotonic()
        if batch:
            yield batch

    # --- preparing: nothing that anybody can see ---------------------------------------------------------------------

    def prepare(self, key: SequenceKey) -> PreparedKey:
        """Take in what arrived for a key, without touching the ledger."""
        prepared: list[PreparedArrival] = []
        for arrival in self.look.of_key(key.text):
            applied = self._facts.history(arrival.manifest.kind, key).applied
            if arrival.known and applied is not None and applied.revision > arrival.manifest.revision:
                continue  # an object of a manifest that was superseded long ago has changed: that is no news
            try:
                one = self._take_in(arrival)
            except (ObjectChanged, ObjectMissing) as error:
                one = self._provisional(arrival, Incomplete((error.message,)))
            except (ValueStreamError, OSError, MemoryError, duckdb.Error) as error:
                one = PreparedArrival(arrival, Incomplete(()), None, failure=_words(error))
            prepared.append(one)
            self._assume(one)
        kept = self._existing.get(key.text, ())
        return PreparedKey(key, tuple(prepared), kept[-1] if kept else None)

    def _assume(self, one: PreparedArrival) -> None:
        """Let the keys after it, and other arrivals of its own, count with what was decided of it."""
        if isinstance(one.provisional, Accept) and isinstance(one.observation, Valid):
            identity, epoch = one.observation.identity, self._facts.epoch_ahead
            opens = Epoch((epoch.number if epoch else 0) + 1, identity.key) if self._opens_epoch(identity, epoch) else None
            self._facts.assume(identity, one.observation.digest, self._feed.computation_hash, opens)
        elif (state := _local_state(one)) is not None:
            self._facts.local.setdefault(one.arrival.manifest.key.text, state)

    def _take_in(self, arrival: Arrival) -> PreparedArrival:
        """Seal and check one arrival, and write its file if it looks as if it will be applied (M5, M6)."""
        if isinstance(arrival.completeness, Incomplete):
            return self._provisional(arrival, arrival.completeness)
        if not isinstance(arrival.completeness, Invalid):
            early = self._blocked(arrival)
            if early is not None:
                return PreparedArrival(arrival, Incomplete(()), early)
        keep_manifest(self._publisher.store, arrival.data)
        if isinstance(arrival.completeness, Invalid):
            return self._provisional(arrival, arrival.completeness)
        sealed = seal(self._publisher.landing, arrival.completeness, self._publisher.store)
        if isinstance(sealed, Incomplete | Invalid):
            return self._provisional(arrival, sealed)
        return self._check(arrival, sealed)

    def _blocked(self, arrival: Arrival) -> Blocked | None:
        """Whether the predecessor rule alone says no, whatever the bytes are; then they are not even read (S27)."""
        manifest = arrival.manifest
        if self._facts.history(manifest.kind, manifest.key).applied is not None:
            return None
        judged = self._feed.rule.judge(manifest.kind, manifest.key, self._facts.epoch_ahead, self._facts.state_of)
        return judged if isinstance(judged, Blocked) else None

    def _check(self, arrival: Arrival, sealed: Sealed) -> PreparedArrival:
        manifest, publisher = arrival.manifest, self._publisher
        observation = Valid(Identity(manifest.kind, manifest.key, manifest.revision), sealed.digest)
        provisional = self._decide(arrival, observation)
        files = [
            PayloadFile(path, entry.path, entry.rows)
            for (entry, _), path in zip(_resolved(arrival).entries, sealed.paths, strict=True)
        ]
        scratch = publisher.store.path("tmp")
        scratch.mkdir(parents=True, exist_ok=True)
        if isinstance(provisional, Accept) and provisional.reuses is None:
            staged = stage(
                files,
                self._feed.contract,
                stamp=RowStamp(manifest.key.text, manifest.kind.value, manifest.key.ordinal),
                controls=manifest.controls,
                provenance=self._provenance(arrival, sealed.digest),
                directory=scratch,
                scratch=scratch,
            )
            if isinstance(staged, RowsRefused):
                return self._provisional(arrival, Invalid(staged.findings))
            if empty := self._empty_fault(arrival, staged.measured):
                staged.path.unlink(missing_ok=True)
                return self._provisional(arrival, Invalid((empty,)))
            file = self._give_name(arrival, sealed.digest, staged)
            return PreparedArrival(arrival, observation, provisional, sealed, file, staged.measured)
        measured = check_only(files, self._feed.contract, controls=manifest.controls, scratch=scratch)
        if isinstance(measured, RowsRefused):
            return self._provisional(arrival, Invalid(measured.findings))
        if empty := self._empty_fault(arrival, measured):
            return self._provisional(arrival, Invalid((empty,)))
        return PreparedArrival(arrival, observation, provisional, sealed, None, measured)

    def _provisional(self, arrival: Arrival, observation: Observation) -> PreparedArrival:
        return PreparedArrival(arrival, observation, self._decide(arrival, observation))

    def _decide(self, arrival: Arrival, observation: Observation) -> Decision:
        history = self._facts.history(arrival.manifest.kind, arrival.manifest.key)
        decision = decide(self._feed.rule, observation, history, self._facts.epoch_ahead, self._facts.state_of)
        reusable = history.applied is not None and history.applied.computation_hash == self._feed.computation_hash
        # Files made by another computation hold the same bytes' rows in another form (L5).
        return decision if not isinstance(decision, Accept) or reusable else Accept()

    def _empty_fault(self, arrival: Arrival, measured: MeasuredRows) -> Finding | None:
        """A delivery without rows is valid only where the feed or the manifest says so (ruling 13)."""
        if measured.rows or self._feed.allow_empty or arrival.manifest.empty:
            return None
        return Finding(
            "empty_not_allowed",
            "the delivery holds no rows",
            "ask the producer; if that is right, let the manifest say `empty: true` or the feed `policy: {allow_empty: true}`.",
        )

    def _provenance(self, arrival: Arrival, digest: Digest) -> dict[str, str]:
        manifest = arrival.manifest
        return {
            "valuestream.source": manifest.source,
            "valuestream.dataset": manifest.dataset,
            "valuestream.kind": manifest.kind.value,
            "valuestream.key": manifest.key.text,
            "valuestream.revision": str(manifest.revision),
            "valuestream.digest": digest.hex,
            "valuestream.computation_hash": self._feed.computation_hash,
            "valuestream.run": self._run_id,
            "valuestream.manifest_sha256": arrival.sha256,
            "valuestream.format": str(FORMAT_VERSION),
        }

    def _give_name(self, arrival: Arrival, digest: Digest, staged: StagedFile) -> PublishedFile:
        """Link the staged file to its immutable name, which carries run and digest, and read it back (L7)."""
        manifest = arrival.manifest
        self._named += 1
        relative = (
            f"published/{manifest.source}/{manifest.dataset}/{manifest.key}/"
            f"{manifest.kind}-r{manifest.revision}-{digest.short}-{self._run_id}.{self._named:05d}.parquet"
        )
        final = self._publisher.store.path(relative)
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            publish_file(staged, final)
        finally:
            staged.path.unlink(missing_ok=True)
        self._loose.add(relative)
        read_back(final, staged)
        return PublishedFile(relative, staged.sha256, staged.bytes, staged.measured.rows)

    # --- recording: one transaction per delivery ---------------------------------------------------------------------

    def record(self, batch: Sequence[PreparedKey]) -> list[KeyOutcome]:
        """Record prepared keys in one opening of the ledger, each delivery in a transaction of its own.

        Raises:
            FenceLost: a later run has taken the feed over.
            LedgerFailure: the ledger did not take it; nothing of the delivery at hand was kept.
        """
        batch = [replace(key, arrivals=tuple(_durable(one) for one in key.arrivals)) for key in batch]
        if not any(prepared.arrivals for prepared in batch):
            return [self._unchanged(prepared) for prepared in batch]
        self._facts.assume_nothing()
        with self._publisher.ledger.session() as session:
            self._begin(session)
            self._read_again(session, [prepared.key for prepared in batch])
            return [self._record_key(session, prepared) for prepared in batch]

    def _unchanged(self, prepared: PreparedKey) -> KeyOutcome:
        return KeyOutcome(prepared.key, (), prepared.existing, changed=False, run_id=None)

    def _begin(self, session: LedgerSession) -> None:
        """Enter the run as running before anything else of it (L9), with the next fencing number; or check ours still holds."""
        name = self._feed.name
        if self._run is not None:
            self._require_fence(session, self._run)
            return
        run = RunRow(
            self._run_id, name, session.read.fence(name) + 1, holder_name(), self._publisher.now(),
            dagster_run_id=self._dagster_run_id,
        )  # fmt: skip
        with session.transaction():
            record_feed_version(session, self._feed, self._publisher.now())
            session.write.run(run, self._feed.computation_hash)
        self._run = run

    def _require_fence(self, session: LedgerSession, run: RunRow) -> None:
        if session.read.fence(self._feed.name) != run.fence:
            raise FenceLost(
                f"another run has taken over {self._feed.name}; this one records nothing more.",
                next_step="look at the newer run; start this one again if keys are still open.",
            )

    def _record_key(self, session: LedgerSession, prepared: PreparedKey) -> KeyOutcome:
        if not prepared.arrivals:
            return self._unchanged(prepared)
        outcomes: list[ArrivalOutcome] = []
        publication, changed = prepared.existing, False
        for one in prepared.arrivals:
            if one.file is not None:
                self._loose.discard(one.file.path)  # whether it is named is the ledger's to say from here on
            with session.transaction():
                outcome, made = self._record_arrival(session, one)
            if one.file is not None and made is None:
                self._publisher.store.delete(one.file.path)
            outcomes.append(outcome)
            self._good += outcome.told.ok
            self._bad += not outcome.told.ok
            if made is not None:
                publication, changed = made, True
        return KeyOutcome(prepared.key, tuple(outcomes), publication, changed, self._run_id)

    def _record_arrival(
        self, session: LedgerSession, one: PreparedArrival
    ) -> tuple[ArrivalOutcome, Publication | None]:
        manifest, name, at = one.arrival.manifest, self._feed.name, self._publisher.now()
        if one.failure is not None:
            return self._record_failure(session, one, one.failure, at), None
        decision = one.provisional if isinstance(one.provisional, Blocked) else self._decide(one.arrival, one.observation)
        if isinstance(decision, Accept) and decision.reuses is None and one.file is None:
            return self._changed_meanwhile(one), None
        publication: Publication | None = None
        if isinstance(one.observation, Valid):
            publication = self._record_valid(session, one, one.observation, decision, at)
        told = tell(manifest, decision)
        warnings = (*manifest.warnings, *_warnings(one))
        if told.verdict is not None and not self._repeats(session, one, told):
            session.write.receipts([self._receipt(one, told, told.verdict, warnings, at)])
        if told.verdict not in (None, Verdict.WAITING):
            touched = one.arrival.touched
            session.write.objects_seen(name, [SeenObject(path, stamp, one.arrival.stat.path) for path, stamp in touched], at)
        outcome = ArrivalOutcome(
            one.arrival.stat.path, manifest.key, manifest.kind, manifest.revision, told, warnings
        )
        return outcome, publication

    def _read_again(self, session: LedgerSession, keys: Sequence[SequenceKey]) -> None:
        """Read all that the decisions rest on (M17).

        Nobody else can write until the session ends, so it holds for every transaction in it, and what those record is
        remembered as they go.
        """
        name, rule = self._feed.name, self._feed.rule
        asked = [text for key in keys for text in (key.text, self._feed.sequence.predecessor(key).text)]
        self._facts.records |= session.read.records(name, asked)
        known = self._facts.epoch
        self._facts.recorded = session.read.epoch(name)
        self._facts.epoch = effective_epoch(rule, self._facts.recorded, known.baseline if known else None)
        self._facts.position = session.read.position(name, required=rule.required)

    def _changed_meanwhile(self, one: PreparedArrival) -> ArrivalOutcome:
        """It may be applied by now and could not when it was prepared: it stays news, and the next pass takes it."""
        manifest = one.arrival.manifest
        told = Told(None, "changed_meanwhile", f"{manifest.name}: the ledger changed while it was prepared.", "apply again.")
        return ArrivalOutcome(one.arrival.stat.path, manifest.key, manifest.kind, manifest.revision, told)

    def _repeats(self, session: LedgerSession, one: PreparedArrival, told: Told) -> bool:
        """A waiting receipt is written once per change of what is missing."""
        if told.verdict is not Verdict.WAITING:
            return False
        last = session.read.last_receipts(self._feed.name, [one.arrival.stat.path]).get(one.arrival.stat.path)
        return last == (Verdict.WAITING, told.detail)

    def _record_failure(
        self, session: LedgerSession, one: PreparedArrival, failure: str, at: datetime
    ) -> ArrivalOutcome:
        """Our own work went wrong: the slice failed, nothing else is known of the delivery, and a retry takes it again."""
        manifest = one.arrival.manifest
        if self._facts.history(manifest.kind, manifest.key).applied is None:
            session.write.slice_events(
                [
                    SliceEvent(
                        self._feed.name, self._epoch_number, manifest.kind, manifest.key, SliceState.FAILED, at,
                        revision=manifest.revision, run_id=self._run_id, why=failure,
                    )
                ]
            )  # fmt: skip
            history = self._facts.history(manifest.kind, manifest.key)
            self._facts.remember(manifest.kind, manifest.key, history, SliceState.FAILED)
        told = Told(None, "failed", f"{manifest.name}: {failure}", "mend the cause, then run `valuestream apply` again.")
        return ArrivalOutcome(
            one.arrival.stat.path, manifest.key, manifest.kind, manifest.revision, told, failed=True
        )

    def _record_valid(
        self, session: LedgerSession, one: PreparedArrival, valid: Valid, decision: Decision, at: datetime
    ) -> Publication | None:
        """Bind the identity; then what the decision asks for: a publication, a conflict, or nothing more."""
        identity, name = valid.identity, self._feed.name
        history = self._facts.history(identity.kind, identity.key)
        bound = Bound(identity.revision, valid.digest)
        if isinstance(decision, Blocked):
            return None
        if bound not in history.bound:
            session.write.delivery(
                name, identity, valid.digest, manifest=one.arrival.stat.path, manifest_sha256=one.arrival.sha256, at=at
            )
            history = replace(history, bound=(*history.bound, bound))
        state: SliceState | None = None
        publication: Publication | None = None
        if isinstance(decision, Accept):
            publication = self._record_publication(session, one, valid, decision.reuses, at)
            applied = Applied(
                identity.revision, valid.digest, publication.publication_id, publication.computation_hash
            )
            open_conflicts = tuple(c for c in history.conflicts if c.revision >= identity.revision)
            history = replace(history, applied=applied, conflicts=open_conflicts)
            state = SliceState.CONFLICT if open_conflicts else SliceState.SUCCEEDED
        elif isinstance(decision, Conflict):
            if bound not in history.conflicts:
                self._record_conflict(session, valid, at)
                history = replace(history, conflicts=(*history.conflicts, bound))
            state = SliceState.CONFLICT
        self._facts.remember(identity.kind, identity.key, history, state)
        return publication

    def _record_conflict(self, session: LedgerSession, valid: Valid, at: datetime) -> None:
        identity = valid.identity
        event = SliceEvent(
            self._feed.name, self._epoch_number, identity.kind, identity.key, SliceState.CONFLICT, at,
            revision=identity.revision, digest=valid.digest.hex, run_id=self._run_id,
        )  # fmt: skip
        session.write.slice_events([event])

    def _record_publication(
        self, session: LedgerSession, one: PreparedArrival, valid: Valid, reuses: str | None, at: datetime
    ) -> Publication:
        identity = valid.identity
        before = self._facts.position
        replaced = self._facts.history(identity.kind, identity.key).applied
        opens = self._opens_epoch(identity, self._facts.epoch)
        epoch = self._open_epoch(session, identity, at, correction=replaced is not None)
        reused = session.read.publication(reuses) if reuses else None
        file = one.file
        files = reused.files if reused else ((file,) if file else ())
        measured = one.measured or MeasuredRows(0, ())
        self._recorded += 1
        publication_id = f"{self._run_id}.{self._recorded:05d}"
        requirement = self._feed.rule.requirement(identity.kind, identity.key, self._facts.epoch)
        event = SliceEvent(
            self._feed.name, epoch, identity.kind, identity.key, SliceState.SUCCEEDED, at,
            requires=requirement.key if isinstance(requirement, Needs) else None, revision=identity.revision,
            digest=valid.digest.hex, run_id=self._run_id, publication_id=publication_id,
        )  # fmt: skip
        session.write.slice_events([event])
        if opens:
            self._link_deltas(session, identity.key, epoch, at)
        self._facts.position = self._position_after(session, identity)
        publication = Publication(
            publication_id=publication_id,
            feed=self._feed.name,
            kind=identity.kind,
            key=identity.key,
            revision=identity.revision,
            digest=valid.digest,
            computation_hash=self._feed.computation_hash,
            run_id=self._run_id,
            rows=measured.rows,
            bytes=sum(file.bytes for file in files),
            published_at=at,
            epoch=epoch,
            previous_key=before.text if before else None,
            position=self._facts.position.text if self._facts.position else None,
            totals=tuple((column, str(total)) for column, total in measured.totals),
            files=files,
            lineage=one.sealed.files if one.sealed else (),
        )
        session.write.publication(publication)
        return publication

    # --- epochs and position -----------------------------------------------------------------------------------------

    @property
    def _epoch_number(self) -> int:
        return self._facts.epoch.number if self._facts.epoch else 0

    def _opens_epoch(self, identity: Identity, epoch: Epoch | None) -> bool:
        """Whether an accepted delivery begins a generation: a full does, unless it corrects one that a later full replaced."""
        if self._feed.mode is not Mode.CHAIN or identity.kind is not Kind.FULL:
            return False
        return epoch is None or not epoch.full or identity.key.ordinal >= epoch.baseline.ordinal

    def _open_epoch(self, session: LedgerSession, identity: Identity, at: datetime, *, correction: bool) -> int:
        """The epoch that a publication belongs to; a full opens the next one, any other first acceptance the first."""
        name, recorded = self._feed.name, self._facts.recorded
        if self._opens_epoch(identity, recorded):
            opened = Epoch((recorded.number if recorded else 0) + 1, identity.key)
        elif recorded is not None:
            applied = self._facts.history(identity.kind, identity.key).applied
            old = session.read.publication(applied.publication_id) if correction and applied else None
            below = self._feed.mode is Mode.CHAIN and identity.key.ordinal <= recorded.baseline.ordinal
            return old.epoch if old is not None and below else recorded.number
        else:
            opened = Epoch(1, self._facts.epoch.baseline if self._facts.epoch else identity.key, full=False)
        session.write.epoch(name, opened, anchor=identity.key.text, run_id=self._run_id, at=at)
        self._facts.epoch = self._facts.recorded = opened
        return opened.number

    def _link_deltas(self, session: LedgerSession, baseline: SequenceKey, epoch: int, at: datetime) -> None:
        """Record as succeeded in the new epoch the applied deltas that follow its full without a gap (ruling 9)."""
        before = baseline
        events: list[SliceEvent] = []
        for key, revision, digest, publication_id in session.read.deltas_after(self._feed.name, baseline.ordinal):
            if self._feed.rule.required and self._feed.sequence.successor(before) != key:
                break
            events.append(
                SliceEvent(
                    self._feed.name, epoch, Kind.DELTA, key, SliceState.SUCCEEDED, at, requires=before,
                    revision=revision, digest=digest, run_id=self._run_id, publication_id=publication_id,
                )
            )  # fmt: skip
            before = key
        if events:
            session.write.slice_events(events)

    def _position_after(self, session: LedgerSession, identity: Identity) -> SequenceKey | None:
        """The position once this slice has succeeded; asked of the ledger only where it may jump."""
        before, key = self._facts.position, identity.key
        jumps = self._feed.mode is Mode.CHAIN and identity.kind is Kind.FULL
        if jumps or before is None or key.ordinal <= before.ordinal:
            return session.read.position(self._feed.name, required=self._feed.rule.required)
        follows = not self._feed.rule.required or self._feed.sequence.successor(before) == key
        return key if follows else session.read.position(self._feed.name, required=True)

    # --- receipts, closing -------------------------------------------------------------------------------------------

    def _receipt(
        self, one: PreparedArrival, told: Told, verdict: Verdict, warnings: tuple[str, ...], at: datetime
    ) -> Receipt:
        digest = one.observation.digest.hex if isinstance(one.observation, Valid) else None
        return receipt_of(
            self._feed.name, one.arrival, told, verdict, at, digest=digest, warnings=warnings, run_id=self._run_id
        )

    def close(self) -> None:
        """End the ledger run, which makes its slices visible, and show them in the catalogue. Without a run: nothing."""
        if self._run is None:
            return
        status = "ok" if not self._bad else ("partial" if self._good else "failed")
        with self._publisher.ledger.session() as session:
            self._require_fence(session, self._run)
            with session.transaction():
                session.write.run_end(self._run.run_id, self._feed.name, status, self._publisher.now())
            self._publisher.publish_catalogue(session)
        self._run = None
        self._next_id = self._new_id()
        self._recorded = self._named = self._good = self._bad = 0

    def abandon(self) -> None:
        """Leave without closing: an open ledger run stays as an interrupted one, for the next invocation to settle.

        Files of which nothing was recorded are taken away, as far as that can be done.
        """
        self._facts.assume_nothing()
        with suppress(StoreFailure):
            for relative in self._loose:
                self._publisher.store.delete(relative)

    @property
    def _run_id(self) -> str:
        return self._next_id

    def _new_id(self) -> str:
        return f"{self._publisher.now():%Y%m%dT%H%M%S}-{uuid4().hex[:10]}"


def _resolved(arrival: Arrival) -> Resolved:
    if not isinstance(arrival.completeness, Resolved):
        raise Broken(f"{arrival.manifest.name} was sealed without being complete")
    return arrival.completeness


def _local_state(one: PreparedArrival) -> SliceState | None:
    """What a run knows of a key that the ledger does not: that it came to nothing in this very run."""
    if one.failure is not None:
        return SliceState.FAILED
    if isinstance(one.provisional, Blocked):
        return SliceState.BLOCKED
    if isinstance(one.observation, Incomplete):
        return SliceState.WAITING
    return SliceState.REJECTED if isinstance(one.observation, Invalid) else None


def _durable(one: PreparedArrival) -> PreparedArrival:
    """The same once its sealed bytes would survive a power loss; a failure where they would not."""
    if one.sealed is None:
        return one
    try:
        one.sealed.wait_durable()
    except StoreFailure as error:
        return replace(one, failure=_words(error))
    return one


def _warnings(one: PreparedArrival) -> tuple[str, ...]:
    completeness = one.arrival.completeness
    return completeness.warnings if isinstance(completeness, Resolved) else ()


def _words(error: BaseException) -> str:
    """An error of our own surroundings as a sentence, never a traceback."""
    return str(error) if isinstance(error, ValueStreamError) else f"{type(error).__name__}: {error}"
