"""One invocation's work on one feed: prepare keys, record them in batches, close the ledger run. Decision 0001 is kept here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from valuestream_dagster.core.continuity import (
    Blocked,
    Epoch,
    Judgement,
    Mode,
    SliceState,
)
from valuestream_dagster.core.decision import (
    Accept,
    Incomplete,
    Invalid,
    Valid,
)
from valuestream_dagster.core.manifest import Kind
from valuestream_dagster.core.sequence import SequenceKey
from valuestream_dagster.errors import FenceLost, StoreFailure
from valuestream_dagster.intake.observe import Arrival, Look, newest_first
from valuestream_dagster.ledger.duck import LedgerSession
from valuestream_dagster.ledger.rows import (
    KeyRecord,
    Publication,
    Ruling,
    RunRow,
)
from valuestream_dagster.publication.catalogue import record_feed_version
from valuestream_dagster.publication.facts import Facts, is_redone, opens_epoch
from valuestream_dagster.publication.locks import holder_name
from valuestream_dagster.publication.means import Means
from valuestream_dagster.publication.outcomes import (
    ArrivalOutcome,
    KeyOutcome,
    PreparedArrival,
    PreparedKey,
    RunName,
    in_words,
)
from valuestream_dagster.publication.owner import require_own
from valuestream_dagster.publication.quarantine import keep_evidence
from valuestream_dagster.publication.record import Recorder
from valuestream_dagster.publication.take_in import Intake

# How much is prepared before it is recorded: so much work at most is done again after a crash.
BATCH_KEYS = 64
BATCH_SECONDS = 2.0


class FeedRun:
    """One invocation's work on one feed, under the feed's lock: ``prepare`` keys, ``record`` them, ``close`` the ledger run.

    Several ledger runs may follow each other in it; each becomes visible as a whole when it is closed.
    """

    def __init__(
        self,
        means: Means,
        seen: Look,
        dagster_run_id: str | None,
        *,
        records: dict[str, KeyRecord],
        existing: dict[str, tuple[Publication, ...]],
        epoch: Epoch | None,
        position: SequenceKey | None,
        stored: Sequence[Arrival] = (),
        earlier: dict[int, int] | None = None,
        purpose: str | None = None,
    ) -> None:
        self._means = means
        self._feed = means.feed
        self.look = seen
        self._dagster_run_id = dagster_run_id
        self._facts = Facts(records, epoch, position, earlier=earlier or {})
        self._intake = Intake(means, self._facts)
        self._existing = existing
        self._stored = stored
        self._purpose = purpose
        self._run: RunRow | None = None
        self._name = RunName.fresh(means.now())
        self._good = self._bad = 0

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
        limit = self._means.settings.limits.keys_per_ledger_run
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

    def work(self, keys: Sequence[SequenceKey]) -> Iterator[KeyOutcome]:
        """Prepare and record keys, and leave the ledger run open: nothing of it becomes visible."""
        for batch in self._batches(keys):
            yield from self.record(batch)

    @property
    def run_id(self) -> str | None:
        """The open ledger run's id, or None before anything was recorded."""
        return self._run.run_id if self._run is not None else None

    def _batches(self, keys: Sequence[SequenceKey]) -> Iterator[list[PreparedKey]]:
        """Prepared keys, gathered so that the ledger is opened and asked for many at once; what took long is not kept waiting."""
        batch: list[PreparedKey] = []
        began = time.monotonic()
        for key in keys:
            batch.append(self.prepare(key))
            if time.monotonic() - began >= BATCH_SECONDS or len(batch) >= BATCH_KEYS:
                yield batch
                batch, began = [], time.monotonic()
        if batch:
            yield batch

    def prepare(self, key: SequenceKey) -> PreparedKey:
        """Take in what arrived for a key, without touching the ledger."""
        prepared: list[PreparedArrival] = []
        for arrival in newest_first((*self.look.of_key(key.text), *self._of_store(key))):
            applied = self._facts.history(arrival.manifest.kind, key).applied
            if arrival.known and applied is not None and applied.revision > arrival.manifest.revision:
                continue  # an object of a manifest that was superseded long ago has changed: that is no news
            one = self._intake.take_in(arrival, self._name)
            prepared.append(one)
            self._assume(one)
        kept = self._existing.get(key.text, ())
        return PreparedKey(key, tuple(prepared), kept[-1] if kept else None)

    def _of_store(self, key: SequenceKey) -> list[Arrival]:
        return [arrival for arrival in self._stored if arrival.manifest.key == key]

    def _assume(self, one: PreparedArrival) -> None:
        """Let the keys after it, and other arrivals of its own, count with what was decided of it."""
        if isinstance(one.provisional, Accept) and isinstance(one.observation, Valid):
            identity, epoch = one.observation.identity, self._facts.epoch_ahead
            opens = (
                Epoch((epoch.number if epoch else 0) + 1, identity.key)
                if opens_epoch(self._feed, identity, epoch) and not is_redone(one.arrival)
                else None
            )
            rows = one.measured.rows if one.measured else 0
            self._facts.assume(identity, one.observation.digest, self._feed.computation_for(identity.key).hash, opens, rows)
        elif (state := _local_state(one)) is not None:
            self._facts.local.setdefault(one.arrival.manifest.key.text, state)

    # --- recording: one transaction per delivery ---------------------------------------------------------------------

    def record(self, batch: Sequence[PreparedKey]) -> list[KeyOutcome]:
        """Record prepared keys, each delivery in a transaction of its own, many in one opening of the ledger.

        Raises:
            FenceLost: a later run has taken the feed over.
            LedgerFailure: the ledger did not take it; nothing of the delivery at hand was kept.
        """
        batch = [replace(key, arrivals=tuple(_durable(one) for one in key.arrivals)) for key in batch]
        if not any(prepared.arrivals for prepared in batch):
            return [self._unchanged(prepared) for prepared in batch]
        self._facts.assume_nothing()
        outcomes: list[KeyOutcome] = []
        while len(outcomes) < len(batch):
            outcomes += self._record_slice(batch[len(outcomes) :])
        return outcomes

    def _record_slice(self, batch: Sequence[PreparedKey]) -> list[KeyOutcome]:
        """Record from the front for one slice of time, at least one key; then let others have the ledger."""
        outcomes: list[KeyOutcome] = []
        with self._means.ledger.session() as session:
            until = time.monotonic() + self._means.settings.limits.ledger_slice_seconds
            self._begin(session)
            self._facts.read_again(session, self._feed, [prepared.key for prepared in batch])
            for prepared in batch:
                outcomes.append(self._record_key(session, prepared))
                if time.monotonic() >= until:
                    break
        return outcomes

    def _unchanged(self, prepared: PreparedKey) -> KeyOutcome:
        return KeyOutcome(prepared.key, (), prepared.existing, changed=False, run_id=None)

    def _begin(self, session: LedgerSession) -> None:
        """Enter the run as running before anything else of it (L9), with the next fencing number; or check ours still holds."""
        name = self._feed.name
        if self._run is not None:
            self._require_fence(session, self._run)
            return
        run = RunRow(
            self._name.run_id, name, session.read.fence(name) + 1, holder_name(), self._means.now(),
            dagster_run_id=self._dagster_run_id, purpose=self._purpose,
        )  # fmt: skip
        require_own(session, self._means.store, self._means.now())
        with session.transaction():
            record_feed_version(session, self._feed, self._means.now())
            session.write.run(run, self._feed.work_hash)
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
        recorder = Recorder(self._means, self._facts, self._name)
        outcomes: list[ArrivalOutcome] = []
        publication, changed = prepared.existing, False
        for one in prepared.arrivals:
            if one.file is not None:
                self._intake.loose.discard(one.file.path)  # whether it is named is the ledger's to say from here on
            with session.transaction():
                outcome, made = recorder.record(session, one)
            if one.file is not None and made is None:
                self._means.store.delete(one.file.path)
            if not is_redone(one.arrival):
                keep_evidence(self._means.store, one, outcome.told, self._means.now())
            outcomes.append(outcome)
            self._good += outcome.told.ok
            self._bad += not outcome.told.ok
            if made is not None:
                publication, changed = made, True
        return KeyOutcome(prepared.key, tuple(outcomes), publication, changed, self._name.run_id)

    def retract(self, ruling: Ruling, nothing: PreparedArrival) -> None:
        """Record a ruling and the publication without rows that carries it out, as a ledger run of its own.

        Args:
            ruling: the ruling.
            nothing: the retracted revision, accepted with no bytes.
        """
        with self._means.ledger.session() as session:
            self._begin(session)
            self._facts.read_again(session, self._feed, [ruling.key])
            with session.transaction():
                session.write.ruling(ruling)
                Recorder(self._means, self._facts, self._name).record_empty(session, nothing)
            self._good += 1
        self.close()

    def close(self) -> None:
        """End the ledger run, which makes its slices visible, and show them in the catalogue. Without a run: nothing."""
        if self._run is None:
            return
        status = "ok" if not self._bad else ("partial" if self._good else "failed")
        with self._means.ledger.session() as session:
            self._require_fence(session, self._run)
            with session.transaction():
                session.write.run_end(self._run.run_id, self._feed.name, status, self._means.now())
            self._means.publish_catalogue(session)
        self._run = None
        self._name = RunName.fresh(self._means.now())
        self._good = self._bad = 0

    def abandon(self) -> None:
        """Leave without closing: an open ledger run stays as an interrupted one, for the next invocation to settle.

        Files of which nothing was recorded are taken away, as far as that can be done.
        """
        self._facts.assume_nothing()
        with suppress(StoreFailure):
            for relative in self._intake.loose:
                self._means.store.delete(relative)


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
        return replace(one, failure=in_words(error))
    return one
